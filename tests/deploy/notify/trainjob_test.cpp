#include "deploy/notify/trainjob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "coordinator/service/certificates.h"
#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::notify {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kPath =
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/mine/status";

// The control plane of Kubeflow Trainer, with a certificate of its own.
class TrainJobTest : public ::testing::Test {
 protected:
  TrainJobTest() {
    coordinator::make_certificates(certs_, {"trainer.example"});
    server_ = std::make_unique<httplib::SSLServer>(
        (certs_ / "server.pem").c_str(), (certs_ / "server.key").c_str());
    server_->Post(kPath, [this](const httplib::Request& request,
                                httplib::Response& answer) {
      std::this_thread::sleep_for(delay_.load());
      const std::lock_guard lock(mutex_);
      tokens_.push_back(request.get_header_value("Authorization"));
      EXPECT_EQ(request.get_header_value("Content-Type"), "application/json");
      received_.push_back(Json::parse(request.body));
      answer.status = 200;
    });
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
    folder_.write("token", "first\n");
  }
  ~TrainJobTest() override {
    server_->stop();
    thread_.join();
  }

  std::map<std::string, std::string> environment() const {
    return {
        {"KUBEFLOW_TRAINER_SERVER_URL",
         "https://127.0.0.1:" + std::to_string(port_) + kPath},
        {"KUBEFLOW_TRAINER_SERVER_CA_CERT", (certs_ / "ca.pem").string()},
        {"KUBEFLOW_TRAINER_SERVER_TOKEN", (folder_.path() / "token").string()}};
  }
  TrainJob trainjob() {
    return TrainJob(trainjob_server(environment()).value(),
                    [this] { return std::optional(progress_); });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return received_.size();
  }

  testing::TemporaryFolder folder_;
  const std::filesystem::path certs_ = folder_.path() / "certs";
  TrainProgress progress_{.step = 30,
                          .num_steps = 200,
                          .epoch = 1,
                          .num_epochs = 10,
                          .metrics = {{"box_loss", 0.0412}}};
  std::atomic<milliseconds> delay_{milliseconds(0)};
  std::mutex mutex_;  // guards the two below
  std::vector<std::string> tokens_;
  std::vector<Json> received_;
  int port_ = 0;

 private:
  std::unique_ptr<httplib::SSLServer> server_;
  std::thread thread_;
};

TEST_F(TrainJobTest, ProgressIsPostedAtMostEvery5SecondsAndTheEndAtOnce) {
  TrainJob job = trainjob();
  job.advance(nullptr, seconds(60));
  job.advance(nullptr, seconds(60));
  ASSERT_EQ(count(), 1u);
  const Json& status = received_[0]["trainerStatus"];
  EXPECT_EQ(received_[0].size(), 1u);
  EXPECT_EQ(status["progressPercentage"], 15);
  EXPECT_FALSE(status.contains("estimatedRemainingSeconds")) << "no pace yet";
  EXPECT_EQ(status["metrics"],
            Json::parse(R"([{"name": "current_epoch", "value": "2"},
                            {"name": "total_epochs", "value": "10"},
                            {"name": "current_step", "value": "30"},
                            {"name": "total_steps", "value": "200"},
                            {"name": "box_loss", "value": "0.0412"}])"));
  EXPECT_TRUE(
      std::regex_match(status["lastUpdatedTime"].get<std::string>(),
                       std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")))
      << status;

  // The token has changed by now.
  folder_.write("token", "second\n");
  const RunEnd end{.exit_code = 0, .reason = "all done"};
  EXPECT_NE(job.left(&end), "");
  job.cut();
  EXPECT_TRUE(job.advance(&end, seconds(10)).empty());
  EXPECT_EQ(job.left(&end), "");
  ASSERT_EQ(count(), 2u);
  EXPECT_EQ(tokens_,
            (std::vector<std::string>{"Bearer first", "Bearer second"}));
  EXPECT_EQ(received_[1]["trainerStatus"]["progressPercentage"], 100);
  EXPECT_EQ(received_[1]["trainerStatus"]["estimatedRemainingSeconds"], 0);
}

TEST_F(TrainJobTest, ARunThatStopsEarlyIsNotDone) {
  TrainJob job = trainjob();
  const RunEnd end{.exit_code = 130, .reason = "interrupted"};
  job.advance(&end, seconds(10));
  ASSERT_EQ(count(), 1u);
  EXPECT_EQ(received_[0]["trainerStatus"]["progressPercentage"], 15);
  EXPECT_FALSE(
      received_[0]["trainerStatus"].contains("estimatedRemainingSeconds"));
}

TEST_F(TrainJobTest, AServerThatHangsCostsTheEnd3Seconds) {
  delay_ = seconds(5);
  TrainJob job = trainjob();
  const RunEnd end{.exit_code = 0, .reason = "all done"};
  const Clock::time_point begin = Clock::now();
  const std::vector<std::string> lines = job.advance(&end, seconds(10));
  EXPECT_LT(Clock::now() - begin, milliseconds(4500));
  EXPECT_EQ(job.left(&end), "");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("has not got the run's last progress"));
}

TEST_F(TrainJobTest, AnotherAuthorityAndALostTokenAreReported) {
  const auto fault = [this] {
    try {
      trainjob().advance(nullptr, seconds(5));
    } catch (const Undelivered& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  std::filesystem::remove(folder_.path() / "token");
  EXPECT_THAT(fault(), HasSubstr("token holds no token"));
  folder_.write("token", "a b");
  EXPECT_THAT(fault(), HasSubstr("token holds no token"));
  folder_.write("token", "first");
  coordinator::make_certificates(folder_.path() / "other", {"localhost"});
  std::filesystem::copy_file(folder_.path() / "other/ca.pem", certs_ / "ca.pem",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(fault(), HasSubstr("certificate is not valid"));
  EXPECT_EQ(count(), 0u);
}

TEST_F(TrainJobTest,
       OutsideATrainJobNothingIsSentAndHalfAnEnvironmentIsRefused) {
  EXPECT_FALSE(trainjob_server({}).has_value());
  for (const char* missing :
       {"KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN"}) {
    auto half = environment();
    half.erase(missing);
    EXPECT_THROW(trainjob_server(half), Error) << missing;
  }
  auto plain = environment();
  plain["KUBEFLOW_TRAINER_SERVER_URL"] = "http://trainer.kubeflow:8082/x";
  EXPECT_THROW(trainjob_server(plain), Error);
}

TEST(TrainerStatus, StaysWithinTheLimitsOfTheApi) {
  const auto status = [](const TrainProgress& progress, double rest) {
    return Json::parse(trainer_status(progress, rest, "t"))["trainerStatus"];
  };
  EXPECT_EQ(status({.step = 199, .num_steps = 200, .metrics = {}},
                   1)["progressPercentage"],
            99);
  EXPECT_EQ(status({.step = 201, .num_steps = 200, .metrics = {}},
                   1)["progressPercentage"],
            100);
  EXPECT_EQ(status({.step = 1, .num_steps = 2, .metrics = {}},
                   1e18)["estimatedRemainingSeconds"],
            2147483647);
  EXPECT_EQ(status({.metrics = {{"box_loss", NAN}}}, NAN),
            Json::parse(R"({"metrics": [], "lastUpdatedTime": "t"})"));
}

}  // namespace
}  // namespace headroom::notify
