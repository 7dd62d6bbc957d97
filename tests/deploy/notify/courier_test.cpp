#include "deploy/notify/courier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace headroom::notify {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// A server's behaviour, set by a test and read by the thread of a Courier.
struct Server {
  std::atomic<bool> is_away = false, is_stuck = false, has_ended = false;
  std::atomic<bool> is_uploading = false;  // until the end cuts it
  std::atomic<int> calls = 0;
};

class Parcel : public Delivery {
 public:
  explicit Parcel(Server& server) : server_(server) {}

  std::vector<std::string> advance(const RunEnd* end, milliseconds) override {
    ++server_.calls;
    while (server_.is_stuck) std::this_thread::sleep_for(milliseconds(1));
    while (end == nullptr && server_.is_uploading && !is_cut_) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    if (end == nullptr && is_cut_) throw Undelivered("cut");
    if (server_.is_away) throw Undelivered("no connection");
    if (end != nullptr) server_.has_ended = true;
    return {};
  }
  std::string left(const RunEnd* end) const override {
    return end != nullptr && !server_.has_ended ? "the end" : "";
  }
  void cut() override { is_cut_ = true; }
  void stop() override {}

 private:
  Server& server_;
  std::atomic<bool> is_cut_ = false;
};

class CourierTest : public ::testing::Test {
 protected:
  Courier::Say say() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void wait_for_lines(size_t count) {
    for (int i = 0; i < 1000 && lines().size() < count; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  Server server_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(CourierTest, OneLineWhenAServerIsUnreachableAndOneWhenItReturns) {
  server_.is_away = true;
  Courier courier(std::make_unique<Parcel>(server_), "MLflow", say());
  for (int i = 0; i < 500 && server_.calls < 2; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  server_.is_away = false;
  wait_for_lines(2);
  EXPECT_THAT(
      lines(),
      ElementsAre("warning: MLflow does not answer as it should (no "
                  "connection): training goes on, and what it misses follows",
                  "MLflow is back"));
  courier.end({.exit_code = 0, .reason = ""}, Clock::now() + seconds(5));
  EXPECT_TRUE(courier.wait(seconds(5)));
  courier.give_up();
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(CourierTest, UndeliveredMessagesAreReported) {
  server_.is_away = true;
  Courier courier(std::make_unique<Parcel>(server_), "MLflow", say());
  wait_for_lines(1);
  courier.end({.exit_code = 0, .reason = ""}, Clock::now() + seconds(1));
  EXPECT_FALSE(courier.wait(milliseconds(1200)));
  courier.give_up();
  EXPECT_EQ(lines().back(),
            "warning: MLflow has not got the end (no connection)");
}

TEST_F(CourierTest, TheEndCancelsAnUploadWithoutBlamingTheServer) {
  server_.is_uploading = true;
  Courier courier(std::make_unique<Parcel>(server_), "MLflow", say());
  while (server_.calls == 0) std::this_thread::yield();
  courier.end({.exit_code = 0, .reason = ""}, Clock::now() + seconds(5));
  EXPECT_TRUE(courier.wait(seconds(5)));
  EXPECT_TRUE(server_.has_ended);
  EXPECT_TRUE(lines().empty());
}

// A look-up of a name cannot be cancelled.
TEST_F(CourierTest, AStuckThreadIsAbandoned) {
  server_.is_stuck = true;
  const auto begin = Clock::now();
  {
    Courier courier(std::make_unique<Parcel>(server_), "MLflow", say());
    while (server_.calls == 0) std::this_thread::yield();
    courier.end({.exit_code = 0, .reason = ""}, Clock::now());
    courier.give_up();
  }
  EXPECT_LT(Clock::now() - begin, seconds(3));
  server_.is_stuck = false;
  std::this_thread::sleep_for(milliseconds(50));  // its thread ends
  for (const std::string& line : lines()) {
    EXPECT_THAT(line, Not(HasSubstr("back")));
  }
}

}  // namespace
}  // namespace headroom::notify
