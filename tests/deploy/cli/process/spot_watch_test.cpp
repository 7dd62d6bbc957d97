#include "deploy/cli/process/spot_watch.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "parallel/base/check.h"
#include "tests/deploy/cli/fake_metadata.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr const char* kAction = "/latest/meta-data/spot/instance-action";
constexpr const char* kRebalance =
    "/latest/meta-data/events/recommendations/rebalance";

TEST(SpotReason, NamesTheEventAndItsTime) {
  EXPECT_EQ(spot_reason(R"({"action":"terminate",)"
                        R"("time":"2026-11-26T12:34:56Z"})"),
            "spot notice: this machine is taken away at 12:34:56 UTC");
  EXPECT_EQ(spot_reason(R"({"action":"stop","time":"2020-01-01T00:00:01Z"})"),
            "spot notice: this machine is stopped at 00:00:01 UTC");
  EXPECT_EQ(spot_reason(R"({"action":"hibernate","time":"soon"})"),
            "spot notice: this machine is hibernated at soon");
  EXPECT_EQ(spot_reason(R"({"action":"terminate","time":7})"),
            "spot notice: this machine is taken away within two minutes");
}

TEST(SpotReason, IsEmptyForAnAnswerThatIsNoNotice) {
  for (const char* text :
       {"", "OK", "<html>login</html>", "[1]", "{}", "{\"a\"",
        R"({"action":7,"time":{}})", R"({"action":"reboot"})"}) {
    EXPECT_EQ(spot_reason(text), "") << text;
  }
}

TEST(AmazonMachine, IsKnownByItsFirmwareAlone) {
  const auto says = [](const std::string& file, const std::string& text) {
    const testing::TemporaryFolder folder;
    if (!file.empty()) folder.write(file, text + "\n");
    return is_amazon_machine(folder.path());
  };
  EXPECT_TRUE(says("sys_vendor", "Amazon EC2"));
  EXPECT_TRUE(says("board_vendor", "Amazon EC2"));
  EXPECT_TRUE(says("product_uuid", "EC2abc12-0000"));
  EXPECT_FALSE(says("sys_vendor", "QEMU"));
  EXPECT_FALSE(says("product_uuid", "0000ec2a"));
  EXPECT_FALSE(says("", ""));
}

// The answers of a metadata service by path; other paths have no answer.
struct Script {
  std::map<std::string, MetadataAnswer> answers;
  int calls = 0;
  SpotNews advance(SpotPoll& poll) {
    return poll.advance([this](const std::string& request, const auto&) {
      ++calls;
      const auto found = answers.find(request.substr(request.find('/')));
      return found == answers.end() ? MetadataAnswer() : found->second;
    });
  }
};

TEST(SpotPoll, AnUnreachableServiceIsAskedOnceAndNothingIsConcluded) {
  Script script;
  SpotPoll poll;
  const SpotNews news = script.advance(poll);
  EXPECT_FALSE(news.is_answered);
  EXPECT_EQ(news.notice + news.warning, "");
  EXPECT_EQ(script.calls, 1);
}

TEST(SpotPoll, ATokenThatIsInvalidInAHeaderIsIgnored) {
  for (const std::string& token :
       {std::string(), std::string("a\r\nHost: b"), std::string(5000, 'a')}) {
    Script script{.answers = {{"/latest/api/token", {200, token}},
                              {kAction, {200, "{}"}}}};
    SpotPoll poll;
    EXPECT_EQ(script.advance(poll).notice, "");
    EXPECT_EQ(script.calls, 1);
  }
}

TEST(SpotPoll, AnUnclearAnswerIsNoNotice) {
  for (int status : {0, 301, 403, 500}) {
    Script script{.answers = {{"/latest/api/token", {200, "token"}},
                              {kAction, {status, "{}"}},
                              {kRebalance, {404, ""}}}};
    SpotPoll poll;
    EXPECT_EQ(script.advance(poll).notice, "") << status;
  }
}

TEST(SpotPoll, AServiceThatAnswersEverythingAlikeGivesNoNotice) {
  Script script{.answers = {{"/latest/api/token", {200, "token"}},
                            {kAction, {200, "welcome"}},
                            {kRebalance, {200, "welcome"}}}};
  SpotPoll poll;
  const SpotNews news = script.advance(poll);
  EXPECT_TRUE(news.is_answered);
  EXPECT_EQ(news.notice + news.warning, "");
}

class SpotWatchTest : public ::testing::Test {
 protected:
  SpotWatch::Options options(int port) {
    SpotWatch::Options result{.interval = milliseconds(20),
                              .limit = milliseconds(300),
                              .print = [this](const std::string& line) {
                                const std::lock_guard lock(mutex_);
                                lines_.push_back(line);
                              }};
    result.service.sin_family = AF_INET;
    result.service.sin_port = htons(static_cast<uint16_t>(port));
    result.service.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return result;
  }
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 500 && !holds(); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return holds();
  }

  std::mutex mutex_;  // guards the lines
  std::vector<std::string> lines_;
};

TEST_F(SpotWatchTest, ANoticeIsSeenWithANewTokenWhereTheOldOneHasEnded) {
  testing::FakeMetadata service;
  const SpotWatch watch(options(service.port()));
  const std::string asks = std::string("GET ") + kAction;
  ASSERT_TRUE(eventually([&] { return service.count_of(asks) >= 3; }));
  EXPECT_EQ(service.count_of("PUT /latest/api/token"), 1u);
  EXPECT_EQ(watch.notice(), "");
  service.end_tokens();
  service.take_away("2026-11-26T12:34:56Z");
  ASSERT_TRUE(eventually([&] { return !watch.notice().empty(); }));
  EXPECT_EQ(watch.notice(),
            "spot notice: this machine is taken away at 12:34:56 UTC");
  EXPECT_EQ(service.count_of("PUT /latest/api/token"), 2u);
}

TEST_F(SpotWatchTest, ARecommendationGivesOneWarning) {
  testing::FakeMetadata service;
  service.recommend_rebalance();
  const SpotWatch watch(options(service.port()));
  ASSERT_TRUE(eventually(
      [&] { return service.count_of(std::string("GET ") + kAction) >= 5; }));
  EXPECT_EQ(watch.notice(), "");
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("rebalance recommendation"));
}

// The service never accepts a connection, or never ends its answer.
TEST_F(SpotWatchTest, AServiceThatHangsDelaysNothing) {
  for (const std::string& says :
       {std::string(), std::string("HTTP/1.1 200 OK\r\nX: "),
        "HTTP/1.1 200 " + std::string(200'000, 'a')}) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SpotWatch::Options hanging = options(0);
    auto* const address = reinterpret_cast<sockaddr*>(&hanging.service);
    socklen_t size = sizeof hanging.service;
    ASSERT_EQ(bind(listener, address, size), 0);
    ASSERT_EQ(listen(listener, 4), 0);
    ASSERT_EQ(getsockname(listener, address, &size), 0);
    std::jthread server([&](const std::stop_token& stop) {
      while (!says.empty() && !stop.stop_requested()) {
        const int caller = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (caller < 0) return;
        send(caller, says.data(), says.size(), MSG_NOSIGNAL);
        std::this_thread::sleep_for(milliseconds(400));
        close(caller);
      }
    });
    {
      const SpotWatch watch(hanging);
      std::this_thread::sleep_for(milliseconds(700));
      const Clock::time_point begin = Clock::now();
      EXPECT_EQ(watch.notice(), "");
      EXPECT_LT(Clock::now() - begin, milliseconds(100));
    }
    server.request_stop();
    shutdown(listener, SHUT_RDWR);
    close(listener);
  }
}

TEST(SpotChoice, OffAndAutoElsewhereSendNoRequestAndOtherValuesAreRefused) {
  const testing::TemporaryFolder elsewhere;
  EXPECT_EQ(watch_spot("off", nullptr, elsewhere.path()), nullptr);
  EXPECT_EQ(watch_spot("auto", nullptr, elsewhere.path()), nullptr);
  for (const char* choice :
       {"on", "", "https://169.254.169.254", "http://metadata",
        "http://1.2.3.4:x", "http://1.2.3.4:99999", "http://1.2.3.4/latest"}) {
    EXPECT_THROW(require_spot_choice(choice), Error) << choice;
  }
  require_spot_choice("http://169.254.169.254/");
}

}  // namespace
}  // namespace headroom::cli
