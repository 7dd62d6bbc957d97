#include "deploy/notify/webhook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "deploy/notify/notifier.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/deploy/notify/fake_mlflow.h"

namespace headroom::notify {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::string event(const std::string& kind, int step,
                  const std::string& more = "") {
  return "{\"event\":\"" + kind + "\",\"step\":" + std::to_string(step) +
         ",\"rank\":0,\"reason\":\"it <happened>\",\"time\":\"t\"" + more +
         "}\n";
}

class WebhookTest : public ::testing::Test {
 protected:
  WebhookTest() {
    receiver_.set_fault(
        [this](const httplib::Request& request, httplib::Response& answer) {
          const std::lock_guard lock(mutex_);
          if (is_away_) {
            answer.status = 503;
            return true;
          }
          received_.push_back(Json::parse(request.body));
          EXPECT_EQ(request.path, "/services/secret");
          answer.set_content("ok", "text/plain");
          return true;
        });
  }
  Webhook webhook() {
    const auto events = folder_.path() / run_files::kEvents;
    return Webhook(parse_web_address("--webhook",
                                     receiver_.address() + "/services/secret"),
                   "exp3",
                   records::EventReader(events, records::end_of_lines(events)));
  }

  testing::TemporaryFolder folder_;
  std::mutex mutex_;  // guards the two below
  bool is_away_ = false;
  std::vector<Json> received_;
  testing::FakeMlflow receiver_;
};

TEST_F(WebhookTest, FaultsAndTheEndInTheirOrderOneAtATime) {
  const std::string older = event("loss_of_process", 1);
  folder_.write(run_files::kEvents, older);
  Webhook hook = webhook();
  folder_.write(
      run_files::kEvents,
      older + event("epoch", 2) +
          event("out_of_memory", 3, ",\"change\":\"the step is tried again\"") +
          event("out_of_memory", 4, ",\"change\":\"from now on lean\"") +
          event("loss_of_process", 5) + "{\"event\":\"loss_of_pr");
  hook.advance(nullptr, seconds(5));
  EXPECT_EQ(received_.size(), 1u);
  const RunEnd end{.exit_code = 5, .reason = "no worker is left"};
  for (int i = 0; i < 3 && !hook.left(&end).empty(); ++i) {
    hook.advance(&end, seconds(5));
  }
  ASSERT_EQ(received_.size(), 3u);
  EXPECT_EQ(received_[0], (Json{{"event", "out_of_memory"},
                                {"run", "exp3"},
                                {"step", 4},
                                {"reason", "it <happened>"},
                                {"time", "t"},
                                {"text", "exp3, step 4: it <happened>"}}));
  EXPECT_EQ(received_[1]["event"], "loss_of_process");
  EXPECT_EQ(received_[2]["event"], "run_over");
  EXPECT_EQ(received_[2]["reason"], "no worker is left");
  EXPECT_EQ(received_[2]["step"], 5);
}

TEST_F(WebhookTest, AtTheEndAllQueuedMessagesAreSentAtOnce) {
  Webhook hook = webhook();
  folder_.write(run_files::kEvents,
                event("loss_of_process", 1) + event("loss_of_process", 2));
  const RunEnd end{.exit_code = 5, .reason = "no worker is left"};
  hook.advance(&end, seconds(5));
  EXPECT_EQ(hook.left(&end), "");
  EXPECT_EQ(received_.size(), 3u);
}

TEST_F(WebhookTest, AMessageThatIsRefusedForGoodIsDroppedAndReportedOnce) {
  Webhook hook = webhook();
  int status = 410;
  receiver_.set_fault([&](const httplib::Request&, httplib::Response& answer) {
    answer.status = status;
    return true;
  });
  folder_.write(run_files::kEvents,
                event("loss_of_process", 1) + event("loss_of_process", 2));
  EXPECT_THAT(hook.advance(nullptr, seconds(5)),
              ::testing::ElementsAre(HasSubstr("refuses a message, which is "
                                               "dropped (HTTP 410)")));
  EXPECT_EQ(hook.advance(nullptr, seconds(5)), std::vector<std::string>());
  const RunEnd end{.exit_code = 5, .reason = "no worker is left"};
  for (const int passing : {401, 403, 408, 429, 500}) {
    status = passing;
    EXPECT_THROW(hook.advance(&end, seconds(5)), Undelivered) << passing;
    EXPECT_EQ(hook.left(&end), "3 messages") << passing;
  }
  status = 200;
  EXPECT_THAT(
      hook.advance(&end, seconds(5)),
      ::testing::ElementsAre("webhook: 2 messages were refused and dropped"));
  EXPECT_EQ(hook.left(&end), "");
}

TEST_F(WebhookTest, AFullQueueCountsDroppedMessagesAndKeepsTheEnd) {
  Webhook hook = webhook();
  std::string events;
  for (size_t i = 0; i < Webhook::kLongestQueue + 7; ++i) {
    events += event("loss_of_process", static_cast<int>(i));
  }
  folder_.write(run_files::kEvents, events);
  is_away_ = true;
  EXPECT_THROW(hook.advance(nullptr, seconds(5)), Undelivered);
  EXPECT_EQ(hook.left(nullptr), "107 messages");
  is_away_ = false;
  const RunEnd end{.exit_code = 0, .reason = "done"};
  std::vector<std::string> lines;
  while (!hook.left(&end).empty()) lines = hook.advance(&end, seconds(5));
  EXPECT_EQ(received_.size(), Webhook::kLongestQueue + 1);
  EXPECT_EQ(received_.back()["event"], "run_over");
  EXPECT_THAT(lines, ::testing::ElementsAre(
                         "webhook: 7 messages more than the queue holds were "
                         "dropped"));
}

TEST_F(WebhookTest, ANotifierReportsTheEndAndShowsNoSecret) {
  is_away_ = true;
  std::vector<std::string> lines;
  std::atomic<int> interrupts = 0;
  std::mutex mutex;
  Notifier notifier(
      addressees_of({.webhook = receiver_.address() + "/services/secret"}),
      {.directory = folder_.path(),
       .goes_on = false,
       .say =
           [&](const std::string& line) {
             const std::lock_guard lock(mutex);
             lines.push_back(line);
             ++interrupts;  // a short test
           },
       .interrupts = [&] { return interrupts.load(); }});
  notifier.finish({.exit_code = 0, .reason = "done"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "warning: the webhook at " + receiver_.address() +
                          " has not got 1 message (HTTP 503)");
  for (const std::string& line : lines)
    EXPECT_THAT(line, Not(HasSubstr("secret")));
}

// --- Limits of a request

std::string refusal(const NotifierRequest& request) {
  try {
    addressees_of(request);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
}

TEST(Addressees, AnInvalidAddressIsRefusedWithoutItsText) {
  for (const char* address :
       {"ml.example", "ftp://ml.example", "https://", "https://:80",
        "https://name:hunter2@ml.example", "https://ml.example:99999",
        "https://ml.example/a b", "https://ml.example:x"}) {
    const std::string text = refusal({.mlflow = address});
    EXPECT_THAT(text, HasSubstr("--mlflow: ")) << address;
    EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  }
  EXPECT_EQ(refusal({.mlflow = "https://[::1]:5000/ml/"}), "");
}

TEST(Addressees, TheirPartsAreRead) {
  const WebAddress address =
      *addressees_of({.mlflow = "https://[fe80::a]:5000/ml//"}).mlflow;
  EXPECT_EQ(address.host, "fe80::a");
  EXPECT_EQ(address.path, "/ml");
  EXPECT_EQ(address.shown(), "https://[fe80::a]:5000");
  EXPECT_EQ(parse_web_address("--webhook", "http://a?b=c/").path, "?b=c/");
  EXPECT_EQ(addressees_of({.webhook = "http://a/b//"}).webhook->path, "/b//");
  EXPECT_EQ(parse_web_address("--webhook", "http://a").shown(), "http://a");
}

class Credentials : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name :
         {"MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME",
          "MLFLOW_TRACKING_PASSWORD"}) {
      unsetenv(name);
    }
  }
};

TEST_F(Credentials, NeverTravelInTheClearBeyondLoopback) {
  const NotifierRequest far = {.mlflow = "http://10.0.0.7:5000"};
  EXPECT_EQ(refusal(far), "");
  setenv("MLFLOW_TRACKING_TOKEN", "hunter2", 1);
  EXPECT_THAT(refusal(far),
              AllOf(HasSubstr("MLFLOW_TRACKING_TOKEN is set, but "
                              "http://10.0.0.7:5000 is plain HTTP"),
                    Not(HasSubstr("hunter2"))));
  EXPECT_EQ(addressees_of({.mlflow = "http://127.0.0.1:5000"}).authorization,
            "Bearer hunter2");
  EXPECT_EQ(addressees_of({.mlflow = "https://ml.example"}).authorization,
            "Bearer hunter2");
  setenv("MLFLOW_TRACKING_TOKEN", "hunter2\r\nX: y", 1);
  EXPECT_THAT(refusal({.mlflow = "https://ml.example"}),
              AllOf(HasSubstr("has a character that no token may have"),
                    Not(HasSubstr("hunter2"))));
}

TEST_F(Credentials, ANameWithAPasswordIsEnough) {
  setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
  setenv("MLFLOW_TRACKING_PASSWORD", "hunter2", 1);
  EXPECT_THAT(refusal({.mlflow = "http://ml.example"}),
              HasSubstr("MLFLOW_TRACKING_USERNAME is set"));
  EXPECT_EQ(addressees_of({.mlflow = "https://ml.example"}).authorization,
            "Basic bWU6aHVudGVyMg==");
}

}  // namespace
}  // namespace headroom::notify
