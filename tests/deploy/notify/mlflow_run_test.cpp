#include "deploy/notify/mlflow_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "configs/run_config.h"
#include "parallel/base/run_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/deploy/notify/fake_mlflow.h"

namespace headroom::notify {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FakeMlflow;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kColumns =
    "epoch,train/box_loss,metrics/mAP_0.5:0.95,val/box_loss\n";
constexpr seconds kLimit(5);

class MlflowRunTest : public ::testing::Test {
 protected:
  void begin_run() {
    configs::RunConfig config;
    config.data = "shapes.yaml";
    config.epochs = 9;
    folder_.write(run_files::kRun, configs::to_yaml(config));
    // Time stamps of files are coarse.
    std::filesystem::last_write_time(
        folder_.path() / run_files::kRun,
        std::filesystem::file_time_type::clock::now() + seconds(++num_begun_));
    write_epochs({"0,0.5,0.25,", "1,0.25,0.5,1"});
  }
  void write_epochs(const std::vector<std::string>& lines) {
    std::string text = kColumns;
    std::string events;
    for (size_t i = 0; i < lines.size(); ++i) {
      text += lines[i] + "\n";
      events +=
          "{\"event\":\"epoch\",\"step\":4,\"rank\":0,\"reason\":\"\","
          "\"time\":\"1970-01-01T00:00:0" +
          std::to_string(i) + ".500Z\",\"epoch\":" + std::to_string(i) + "}\n";
    }
    folder_.write(run_files::kResults, text);
    folder_.write(run_files::kEvents, events);
  }
  // A run whose files are written after the reader has started.
  std::unique_ptr<MlflowRun> begun_run() {
    auto mlflow = std::make_unique<MlflowRun>(subject());
    begin_run();
    return mlflow;
  }
  MlflowRun::Subject subject(bool goes_on = false) {
    return {.address = parse_web_address("--mlflow", server_.address()),
            .authorization = "Bearer secret",
            .experiment = "shapes & more",
            .run_directory = folder_.path(),
            .run_name = "exp3",
            .goes_on = goes_on};
  }
  FakeMlflow::Run only_run() {
    const auto runs = server_.runs();
    EXPECT_EQ(runs.size(), 1u);
    return runs.empty() ? FakeMlflow::Run() : runs.begin()->second;
  }
  void expect_all_of_two_epochs() {
    EXPECT_THAT(only_run().values("train/box_loss"),
                ElementsAre(Pair(0, 0.5), Pair(1, 0.25)));
    EXPECT_THAT(only_run().values("metrics/mAP_0.5-0.95"),
                ElementsAre(Pair(0, 0.25), Pair(1, 0.5)));
    EXPECT_THAT(only_run().values("val/box_loss"), ElementsAre(Pair(1, 1)));
    EXPECT_EQ(only_run().parameters.at("data"), "shapes.yaml");
  }

  testing::TemporaryFolder folder_;
  FakeMlflow server_;
  int num_begun_ = 0;
};

TEST_F(MlflowRunTest, AllOfARunArrives) {
  MlflowRun mlflow(subject());
  EXPECT_TRUE(mlflow.advance(nullptr, kLimit).empty()) << "nothing is there";
  EXPECT_TRUE(server_.runs().empty());
  begin_run();
  folder_.write("weights/best.safetensors", std::string(300'000, 'w'));
  EXPECT_THAT(mlflow.advance(nullptr, kLimit),
              ElementsAre(HasSubstr("/#/experiments/7/runs/run1")));
  expect_all_of_two_epochs();
  EXPECT_EQ(only_run().metrics.count({"train/box_loss", 1, 1500}), 1u);
  EXPECT_EQ(only_run().status, "RUNNING");
  EXPECT_EQ(only_run().name, "exp3");
  folder_.write("results.png", "png");
  const RunEnd end{.exit_code = 0, .reason = "all 8 steps done"};
  EXPECT_EQ(mlflow.left(&end), "the end's state, results.png");
  mlflow.advance(&end, kLimit);
  EXPECT_EQ(mlflow.left(&end), "");
  EXPECT_EQ(only_run().status, "FINISHED");
  EXPECT_EQ(only_run().tags.at("headroom.end"), "all 8 steps done");
  EXPECT_EQ(only_run().tags.at("headroom.processes_lost"), "0");
  EXPECT_THAT(
      server_.artifacts(),
      ElementsAre(Pair("7/run1/best.safetensors", std::string(300'000, 'w')),
                  Pair("7/run1/results.png", "png")));
  EXPECT_THAT(server_.authorizations(), ::testing::Each("Bearer secret"));
}

TEST_F(MlflowRunTest, ExitCodesAreStates) {
  for (const auto& [code, state] :
       {std::pair{0, "FINISHED"}, std::pair{5, "FAILED"},
        std::pair{130, "KILLED"}}) {
    server_.forget_runs();
    const RunEnd end{.exit_code = code, .reason = ""};
    begun_run()->advance(&end, kLimit);
    EXPECT_EQ(only_run().status, state);
  }
}

struct FaultCase {
  const char* name;
  int status;
  const char* body;
  const char* says;
};

class MlflowFaultTest : public MlflowRunTest,
                        public ::testing::WithParamInterface<FaultCase> {};

// The fault strikes at the first request, and at each later one of the first
// advance.
TEST_P(MlflowFaultTest, LosesNothing) {
  const auto mlflow = begun_run();
  for (int spared = 0; spared < 6; ++spared) {
    std::atomic<int> requests = 0;
    server_.set_fault([&](const httplib::Request&, httplib::Response& answer) {
      if (requests++ < spared) return false;
      answer.status = GetParam().status;
      answer.set_content(GetParam().body, "text/html");
      answer.set_header("Location", "https://login.example/a?secret=1");
      answer.set_header("Retry-After", "17");
      return true;
    });
    try {
      mlflow->advance(nullptr, kLimit);
    } catch (const Undelivered& failure) {
      EXPECT_THAT(failure.what(), HasSubstr(GetParam().says));
      if (GetParam().status == 429) {
        EXPECT_EQ(failure.retry_after(), seconds(17));
      }
    }
    server_.set_fault(nullptr);
  }
  mlflow->advance(nullptr, kLimit);
  EXPECT_EQ(mlflow->left(nullptr), "");
  expect_all_of_two_epochs();
}

INSTANTIATE_TEST_SUITE_P(
    , MlflowFaultTest,
    ::testing::Values(
        FaultCase{"Status500", 500, "", "HTTP 500"},
        FaultCase{"TooMany", 429, "", "HTTP 429"},
        FaultCase{"Denied", 403, "", "HTTP 403, access denied"},
        FaultCase{"Html", 200, "<html><body>log in</body></html>",
                  "not MLflow's"},
        FaultCase{"Garbage", 200, "\x1b[31m\xff{\"run\":", "not MLflow's"},
        FaultCase{"OtherJson", 200, "{\"run\":[1],\"experiment\":\"x\"}",
                  "not MLflow's"},
        FaultCase{"Redirect", 302, "",
                  "a redirect to https://login.example, which"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(MlflowRunTest, ALostReplyCreatesNothingTwice) {
  const auto mlflow = begun_run();
  server_.lose_answers(true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(mlflow->advance(nullptr, kLimit), Undelivered);
  }
  server_.lose_answers(false);
  mlflow->advance(nullptr, kLimit);
  write_epochs({"0,0.5,0.25,", "1,0.25,0.5,1", "2,0.125,,"});
  server_.lose_answers(true);
  EXPECT_THROW(mlflow->advance(nullptr, kLimit), Undelivered);
  server_.lose_answers(false);
  mlflow->advance(nullptr, kLimit);
  EXPECT_THAT(only_run().values("train/box_loss"),
              ElementsAre(Pair(0, 0.5), Pair(1, 0.25), Pair(2, 0.125)));
}

TEST_F(MlflowRunTest, TheWaitForASlowServerIsLimited) {
  // Outlives the test, because the server's threads do.
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  server_.set_fault([is_over](const httplib::Request&, httplib::Response&) {
    for (int i = 0; i < 3000 && !*is_over; ++i) {  // 30 s
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  });
  const auto mlflow = begun_run();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(mlflow->advance(nullptr, milliseconds(200)), Undelivered);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    mlflow->stop();
  });
  EXPECT_THROW(mlflow->advance(nullptr, seconds(20)), Undelivered);
  stopper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
  *is_over = true;
}

TEST_F(MlflowRunTest, TheEndComesBeforeAnUploadThatItCut) {
  const auto is_uploading = std::make_shared<std::atomic<bool>>(false);
  const auto is_over = std::make_shared<std::atomic<bool>>(false);
  server_.set_fault([is_uploading, is_over](const httplib::Request& request,
                                            httplib::Response&) {
    if (request.method != "PUT") return false;
    *is_uploading = true;
    for (int i = 0; i < 3000 && !*is_over; ++i) {  // 30 s
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  });
  folder_.write("weights/best.safetensors", "weights");
  const auto mlflow = begun_run();
  std::thread cutter([&] {
    while (!*is_uploading) std::this_thread::sleep_for(milliseconds(1));
    mlflow->cut();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(mlflow->advance(nullptr, kLimit), Undelivered);
  cutter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  const RunEnd end{.exit_code = 0, .reason = "done"};
  EXPECT_THROW(mlflow->advance(&end, seconds(1)), Undelivered);
  *is_over = true;
  EXPECT_EQ(only_run().status, "FINISHED");
  EXPECT_EQ(mlflow->left(&end), "best.safetensors");
}

TEST_F(MlflowRunTest, RefusedParametersDelayNothing) {
  server_.set_fault(
      [](const httplib::Request& request, httplib::Response& answer) {
        if (request.body.find("\"params\"") == std::string::npos) return false;
        answer.status = 400;
        answer.set_content("{\"message\":\"too long\"}", "application/json");
        return true;
      });
  const auto mlflow = begun_run();
  EXPECT_THAT(
      mlflow->advance(nullptr, kLimit),
      ElementsAre(HasSubstr("/runs/run1"),
                  "MLflow: the server refuses parameters, which are not sent "
                  "again (HTTP 400: too long)"));
  EXPECT_EQ(mlflow->left(nullptr), "");
  EXPECT_EQ(only_run().values("train/box_loss").size(), 2u);
  EXPECT_TRUE(mlflow->advance(nullptr, kLimit).empty());
}

// Each byte arrives within the timeout of a read.
TEST_F(MlflowRunTest, AReplyThatDripsIsCutToo) {
  server_.set_fault([](const httplib::Request&, httplib::Response& answer) {
    answer.set_content_provider(1000, "application/json",
                                [](size_t, size_t, httplib::DataSink& sink) {
                                  std::this_thread::sleep_for(milliseconds(50));
                                  return sink.write("x", 1);
                                });
    return true;
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto mlflow = begun_run();
  EXPECT_THROW(mlflow->advance(nullptr, milliseconds(300)), Undelivered);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
}

TEST_F(MlflowRunTest, AnEndlessAnswerIsCut) {
  server_.set_fault([](const httplib::Request&, httplib::Response& answer) {
    answer.set_chunked_content_provider(
        "application/json", [](size_t, httplib::DataSink& sink) {
          return sink.write(std::string(1 << 16, 'x').data(), 1 << 16);
        });
    return true;
  });
  try {
    const auto mlflow = begun_run();
    mlflow->advance(nullptr, kLimit);
    FAIL();
  } catch (const Undelivered& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("longer than 1 MiB"));
  }
}

TEST_F(MlflowRunTest, AResumedRunGoesOnAsTheSame) {
  {
    const RunEnd end{.exit_code = 130, .reason = "interrupted"};
    begun_run()->advance(&end, kLimit);
  }
  MlflowRun mlflow(subject(/*goes_on=*/true));
  mlflow.advance(nullptr, kLimit);
  EXPECT_EQ(only_run().status, "RUNNING");
  expect_all_of_two_epochs();
  // The second epoch is trained again, in another layout.
  write_epochs({"0,0.5,0.25,", "1,0.26,0.5,1", "2,0.125,,"});
  mlflow.advance(nullptr, kLimit);
  EXPECT_EQ(only_run().values("train/box_loss").back().second, 0.125);
  EXPECT_EQ(only_run().metrics.at({"train/box_loss", 1, 1500}), 0.26);
}

TEST_F(MlflowRunTest, AnotherRunInTheFolderIsAnotherRunThere) {
  begun_run()->advance(nullptr, kLimit);
  MlflowRun mlflow(subject());  // --exist-ok: the older run's files exist
  mlflow.advance(nullptr, kLimit);
  EXPECT_EQ(server_.runs().size(), 1u);
  begin_run();
  mlflow.advance(nullptr, kLimit);
  EXPECT_EQ(server_.runs().size(), 2u);
}

TEST_F(MlflowRunTest, ARunDeletedOnTheServerIsMadeAnew) {
  const auto mlflow = begun_run();
  mlflow->advance(nullptr, kLimit);
  server_.forget_runs();
  write_epochs({"0,0.5,0.25,", "1,0.25,0.5,1", "2,0.125,,"});
  EXPECT_THROW(mlflow->advance(nullptr, kLimit), Undelivered);
  EXPECT_THAT(mlflow->advance(nullptr, kLimit),
              ElementsAre("MLflow: run run1 is gone there; a new one gets all "
                          "of it",
                          HasSubstr("/runs/run2")));
  EXPECT_EQ(only_run().values("train/box_loss").size(), 3u);
}

TEST_F(MlflowRunTest, AServerWithoutArtifactsIsNamed) {
  server_.set_artifact_root("s3://bucket/");
  folder_.write("results.png", "png");
  const auto mlflow = begun_run();
  const RunEnd end{.exit_code = 0, .reason = ""};
  EXPECT_THAT(
      mlflow->advance(&end, kLimit),
      ElementsAre(HasSubstr("/runs/run1"), HasSubstr("s3://bucket/run1")));
  EXPECT_EQ(mlflow->left(&end), "");
  EXPECT_TRUE(server_.artifacts().empty());
}

// A path from a hostile or broken server must not leave its artifacts.
TEST_F(MlflowRunTest, AnArtifactPathWithOddPartsIsRejected) {
  server_.set_artifact_root("mlflow-artifacts:/../../x?y=");
  folder_.write("results.png", "png");
  const auto mlflow = begun_run();
  const RunEnd end{.exit_code = 0, .reason = ""};
  mlflow->advance(&end, kLimit);
  EXPECT_TRUE(server_.artifacts().empty());
}

TEST_F(MlflowRunTest, ARecordThatIsDamagedMeansANewRun) {
  begin_run();
  folder_.write(run_files::kMlflow,
                "{\"server\":\"" + server_.address() +
                    "\",\"experiment\":\"shapes & more\",\"run_id\":\"../x\","
                    "\"mark\":\"a\",\"parameters\":\"x\",\"epochs\":-3}");
  MlflowRun(subject(/*goes_on=*/true)).advance(nullptr, kLimit);
  expect_all_of_two_epochs();
}

}  // namespace
}  // namespace headroom::notify
