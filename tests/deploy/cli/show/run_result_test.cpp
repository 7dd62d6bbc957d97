#include "deploy/cli/show/run_result.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(RunResult, ForReadersWithTheNextCommands) {
  const TemporaryFolder root;
  root.write("weights/best.safetensors", "");
  coordinator::RunStatus status;
  status.run_directory = root.path();
  status.reason = "all 780 steps done";
  status.result_json =
      R"({"precision": 0.8, "recall": 0.75, "map50": 0.8034, "map": 0.51})";
  configs::RunConfig config;
  config.data = "d.yaml";
  const std::string directory = root.path();
  EXPECT_EQ(result_text(config, status),
            "results:  P 0.800  R 0.750  mAP50 0.803  mAP 0.510\n"
            "in:       " +
                directory +
                "\n"
                "end:      all 780 steps done\n"
                "judge:    headroom val --data d.yaml --weights " +
                directory + "/weights/best.safetensors\n");
}

TEST(RunResult, WeightsAreJudgedAsTheyWereTrained) {
  const TemporaryFolder root;
  root.write("weights/best.safetensors", "");
  coordinator::RunStatus status;
  status.run_directory = root.path();
  configs::RunConfig config;
  config.data = "d.yaml";
  const auto flags = [&] {
    const std::string text = result_text(config, status);
    return text.substr(text.find("best.safetensors") + 16);
  };
  config.image_height = config.image_width = 224;
  EXPECT_EQ(flags(), " --img 224\n");
  config.image_width = 320;
  config.single_cls = true;
  EXPECT_EQ(flags(), " --img 224 320 --single-cls\n");
}

TEST(RunResult, PathsWithSpacesAreQuotedToBeCopied) {
  const TemporaryFolder root;
  root.write("a run/weights/best.safetensors", "");
  coordinator::RunStatus status;
  status.run_directory = root.path() / "a run";
  configs::RunConfig config;
  config.data = "my data/d.yaml";
  EXPECT_THAT(result_text(config, status),
              HasSubstr("headroom val --data 'my data/d.yaml' --weights '" +
                        status.run_directory + "/weights/best.safetensors'\n"));
}

TEST(RunResult, ValidationHasCocosFiguresByClassAndSize) {
  coordinator::RunStatus status;
  status.run_directory = "/r";
  status.reason = "validated 10 images";
  status.result_json =
      R"({"map50": 0.5, "per_class": [)"
      R"({"name": "circle", "labels": 5, "precision": 1, "recall": 0.5,)"
      R"( "map50": 0.25, "map": 0.125, "coco": {"all": {"AP": 0.1},)"
      R"( "small": {"AP": -1}, "medium": {"AP": 0.2}, "large": {"AP": 0.3}}}],)"
      R"( "per_size": {"small": {"objects": 7, "AP": -1, "AP50": 0.5,)"
      R"( "AP75": 0.25, "AR100": 0.75}}})";
  const std::string text = result_text(configs::RunConfig(), status);
  EXPECT_THAT(
      text, HasSubstr("mAP 0.125 | COCO:  AP 0.100  APs     -  APm 0.200  APl "
                      "0.300\n"));
  EXPECT_THAT(
      text, HasSubstr("          COCO, small       AP     -  AP50 0.500  AP75 "
                      "0.250  AR100 0.750  of 7 objects\n"));
}

TEST(RunResult, NamesBeyondAsciiStandInOneColumn) {
  coordinator::RunStatus status;
  status.result_json =
      R"({"per_class": [{"name": "Äpfel", "labels": 1, "precision": 1},)"
      R"( {"name": "自転車", "labels": 1, "precision": 1}]})";
  const std::string text = result_text(configs::RunConfig(), status);
  EXPECT_THAT(text, HasSubstr("\n          Äpfel             P 1.000"));
  EXPECT_THAT(text, HasSubstr("\n          自転車            P 1.000"));
}

TEST(RunResult, EveryClassWithLabelsHasALine) {
  coordinator::RunStatus status;
  status.run_directory = "/r";
  status.reason = "validated 10 images";
  status.result_json =
      R"({"map50": 0.5, "per_class": [)"
      R"({"name": "circle", "labels": 5, "precision": 1, "recall": 0.5,)"
      R"( "map50": 0.25, "map": 0.125},)"
      R"({"name": "absent", "labels": 0, "precision": 0, "recall": 0}]})";
  EXPECT_EQ(result_text(configs::RunConfig(), status),
            "results:  mAP50 0.500\n"
            "          circle            P 1.000  R 0.500  mAP50 0.250  mAP "
            "0.125\n"
            "in:       /r\n"
            "end:      validated 10 images\n");
}

TEST(RunResult, WithoutValidation) {
  coordinator::RunStatus status;
  status.run_directory = "/nowhere";
  status.reason = "reached --max-steps 3";
  EXPECT_EQ(result_text(configs::RunConfig(), status),
            "results:  (no validation)\n"
            "in:       /nowhere\n"
            "end:      reached --max-steps 3\n");
}

TEST(RunResult, AsOneJsonDocument) {
  const auto json = nlohmann::json::parse(
      result_json({5, "stopped"}, "/run", R"({"map50": 0.5})"));
  EXPECT_EQ(json["map50"], 0.5);
  EXPECT_EQ(json["exit_code"], 5);
  EXPECT_EQ(json["reason"], "stopped");
  EXPECT_EQ(json["run_directory"], "/run");
}

TEST(RunResult, JsonSurvivesBrokenTextAndNoSummary) {
  const auto json =
      nlohmann::json::parse(result_json({2, "bad \xff byte"}, "", "{"));
  EXPECT_EQ(json["exit_code"], 2);
}

TEST(ResumeHint, OnlyWhereThereIsSomethingToResume) {
  const TemporaryFolder root;
  EXPECT_EQ(resume_hint({130, "stopped"}, root.path()), "");
  const std::string directory = root.path();
  root.write("checkpoints/step-2/state.safetensors.partial", "");
  EXPECT_EQ(resume_hint({5, "disk full"}, directory), "") << "never finished";
  root.write("checkpoints/step-3/MANIFEST.json", "{}");
  EXPECT_EQ(resume_hint({130, "stopped"}, directory),
            "go on with: headroom train --resume " + directory);
  EXPECT_EQ(resume_hint({5, "lost"}, directory),
            "go on with: headroom train --resume " + directory);
  const std::string spaced = directory + "/my runs";
  root.write("my runs/checkpoints/step-3/MANIFEST.json", "{}");
  EXPECT_EQ(resume_hint({5, "lost"}, spaced),
            "go on with: headroom train --resume '" + spaced + "'");
  const RunExit told = {
      .exit_code = 5, .reason = "go on so", .says_how_to_go_on = true};
  EXPECT_EQ(resume_hint(told, directory), "");
  EXPECT_NE(
      resume_hint({5, "--resume was given, and a rank was lost"}, directory),
      "")
      << "a word of the reason decides nothing";
  EXPECT_EQ(resume_hint({2, "refused"}, directory), "");
  EXPECT_EQ(resume_hint({0, "done"}, directory), "");
}

TEST(FolderSummary, ReportsTheLastStepAndHowTheRunEnded) {
  const TemporaryFolder root;
  const std::string folder = root.path();
  EXPECT_THROW(folder_summary(folder), Error);
  configs::RunConfig config;
  config.epochs = 3;
  root.write("run.yaml", configs::to_yaml(config));
  root.write("steps.jsonl", "{\"step\": 7, \"epoch\": 1}\n{\"step\": 8, \"ep");
  root.write("summary.json", R"({"map50": 0.5})");
  root.write("checkpoints/step-8/MANIFEST.json", "{}");
  const auto resume = "go on with: headroom train --resume " + folder + "\n";
  EXPECT_EQ(folder_summary(folder),
            "state:    killed\nprogress: 8 steps, epoch 2/3\n"
            "results:  mAP50 0.500\nin:       " +
                folder + "\nend:      none is written: the run was killed\n" +
                resume);
  // The coordinator of a running run holds its log.
  root.write("coordinator.log.lock", "");
  const int lock = ::open((folder + "/coordinator.log.lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(folder_summary(folder),
            "state:    running\nprogress: 8 steps, epoch 2/3\n"
            "results:  mAP50 0.500\nin:       " +
                folder + "\nend:      the run goes on\n");
  ::close(lock);
  root.write("events.jsonl",
             R"({"event": "run_over", "reason": "all 8 steps done", )"
             R"("time": "T", "exit_code": 0, "state": "finished"})"
             "\n");
  EXPECT_EQ(folder_summary(folder),
            "state:    finished at T\nprogress: 8 steps, epoch 2/3\n"
            "results:  mAP50 0.500\nin:       " +
                folder + "\nend:      all 8 steps done\n");
  const auto json = nlohmann::json::parse(folder_summary_json(folder));
  EXPECT_EQ(json.at("steps"), 8);
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("result").at("map50"), 0.5);
}

TEST(FolderStatus, IsReadOffTheFilesOfARunThatGoesOn) {
  const TemporaryFolder root;
  const std::string folder = root.path();
  configs::RunConfig config;
  config.epochs = 3;
  config.memory_limit = 1000;
  root.write("run.yaml", configs::to_yaml(config));
  EXPECT_EQ(folder_status(folder).state, coordinator::RunPhase::kWaiting);
  root.write("steps.jsonl",
             R"({"step": 7, "epoch": 1, "box": 0.5, "images_per_second": 8.5,)"
             R"( "memory": [{"rank": 0, "predicted_peak_bytes": 90,)"
             R"( "measured_peak_bytes": 80}, {"rank": 1,)"
             R"( "predicted_peak_bytes": null, "measured_peak_bytes": 70}]})"
             "\n{\"step\": 8, \"ep");
  root.write("events.jsonl",
             R"({"sequence": 1, "event": "generation", "reason": "joined",)"
             R"( "generation": 1})"
             "\n"
             R"({"sequence": 2, "event": "epoch", "step": 5, "rank": 0,)"
             R"( "epoch": 0, "num_epochs": 3, "box": 1, "obj": 1, "cls": 1,)"
             R"( "steps": 5, "images": 40, "seconds": 2, "reason": "r"})"
             "\n[1]\n");
  const coordinator::RunStatus status = folder_status(folder);
  EXPECT_EQ(status.state, coordinator::RunPhase::kRunning);
  EXPECT_EQ(status.generation, 1u);
  EXPECT_EQ(status.reason, "joined");
  EXPECT_EQ(status.memory_limit, 1000);
  EXPECT_EQ(status.progress.step, 8);
  EXPECT_EQ(status.progress.num_steps, 15);
  EXPECT_EQ(status.progress.step_in_epoch, 3);
  EXPECT_EQ(status.progress.steps_per_epoch, 5);
  EXPECT_EQ(status.progress.losses, (NamedLosses{{"box", 0.5}}));
  ASSERT_EQ(status.members.size(), 2u);
  EXPECT_EQ(status.members[1].measured_peak_bytes, 70);
  EXPECT_EQ(status.progress.predicted_peak_bytes, 90);
  EXPECT_EQ(status.plan->predicted_phase_bytes[1].training, 0);
  EXPECT_EQ(status.events.size(), 2u);
}

// Two finished runs that differ in two settings, and one that has no summary.
TEST(RunsTable, ComparesTheRunsOfAFolderAndNamesTheSettingsThatDiffer) {
  const TemporaryFolder root;
  const auto write_run = [&](const std::string& name, int64_t batch,
                             double lr0) {
    configs::RunConfig config;
    config.global_batch_size = batch;
    config.hyp.lr0 = lr0;
    root.write(name + "/run.yaml", configs::to_yaml(config));
  };
  write_run("small", 16, 0.01);
  write_run("large", 32, 0.02);
  write_run("killed", 16, 0.01);
  root.write("small/summary.json",
             R"({"map50": 0.8, "map": 0.5, "peak_bytes": [1048576, 2097152],)"
             R"( "wall_seconds": 75.2, "precision": 0.9, "epochs": 1,)"
             R"( "retries": 2})");
  // The first step is slow; its rate is not the run's speed.
  root.write("small/steps.jsonl",
             "{\"step\": 0, \"images_per_second\": 2}\n"
             "{\"step\": 1, \"images_per_second\": 20}\n"
             "{\"step\": 2, \"images_per_second\": 21, \"loss\": 1.5,"
             " \"generation\": 3}\n");
  root.write("large/summary.json", R"({"map50": null, "map": null})");
  const std::string text = runs_table(records::runs_of(root.path()));
  EXPECT_THAT(text,
              HasSubstr("  run     state   mAP50  mAP    peak   images/s  "
                        "time   settings\n"));
  EXPECT_THAT(text,
              HasSubstr("  small   killed  0.800  0.500  2 MiB  20.0      "
                        "1m15s  hyp.lr0=0.01 batch=16\n"));
  EXPECT_THAT(text,
              HasSubstr("  large   killed  -      -      -      -         "
                        "-      hyp.lr0=0.02 batch=32\n"));
  const auto json =
      nlohmann::json::parse(runs_json(records::runs_of(root.path())));
  ASSERT_EQ(json.size(), 3u);
  for (const auto& run : json) {
    const bool is_small = run["run"] == "small";
    EXPECT_EQ(run["steps"], is_small ? 3 : 0);
    EXPECT_EQ(run["loss"].is_null(), !is_small);
    EXPECT_EQ(run["precision"].is_null(), !is_small);
    if (!is_small) continue;
    EXPECT_EQ(run["peak_bytes"], 2097152);
    EXPECT_EQ(run["settings"]["hyp.lr0"], "0.01");
    EXPECT_EQ(run["loss"], 1.5);
    EXPECT_EQ(run["generations"], 3);
    EXPECT_EQ(run["epochs"], 1);
    EXPECT_EQ(run["retries"], 2);
    EXPECT_TRUE(run["recall"].is_null());
  }
}

TEST(RunsTable, ARunThatCannotBeReadIsNamedAndTheOthersAreShown) {
  const TemporaryFolder root;
  root.write("good/run.yaml", configs::to_yaml(configs::RunConfig()));
  root.write("bad/run.yaml", "epochs: [\n");
  const std::string text = runs_table(records::runs_of(root.path()));
  EXPECT_THAT(text, HasSubstr("bad   its run.yaml cannot be read"));
  EXPECT_THAT(text, HasSubstr("good  killed"));
}

}  // namespace
}  // namespace headroom::cli
