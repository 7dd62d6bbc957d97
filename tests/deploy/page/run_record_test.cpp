#include "deploy/page/run_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "deploy/page/run_places.h"
#include "parallel/base/check.h"
#include "tests/deploy/page/run_directory_fixture.h"

namespace headroom::page {
namespace {

using Json = nlohmann::json;

Json run_of(RunRecord& record, const coordinator::RunStatus* live = nullptr,
            bool is_held = false) {
  record.refresh(live, is_held);
  return Json::parse(record.run(
      [](const Picture& picture) { return "/files?name=" + picture.name; }));
}

TEST(RunRecord, AFinishedRunIsShownFromItsFiles) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  const Json run = run_of(record);
  EXPECT_EQ(run["state"], "finished");
  EXPECT_EQ(run["reason"], "2 epochs");
  EXPECT_TRUE(run["command"].is_null());
  EXPECT_EQ(run["progress"]["step"], 6);
  EXPECT_EQ(run["progress"]["steps"], 6);
  EXPECT_EQ(run["progress"]["epoch"], 2);
  EXPECT_EQ(run["progress"]["epochs"], 2);
  EXPECT_TRUE(run["progress"]["eta_seconds"].is_null());
  EXPECT_EQ(run["epochs"]["columns"][1], "train/box_loss");
  EXPECT_EQ(run["epochs"]["rows"].size(), 2u);
  EXPECT_EQ(run["epochs"]["rows"][1][0], 1);
  EXPECT_EQ(run["epochs"]["rows"][1][3], 0.3);
  EXPECT_EQ(run["layout"]["data"], 2);
  ASSERT_EQ(run["ranks"].size(), 2u);
  EXPECT_EQ(run["ranks"][1]["host"], "vm");
  EXPECT_EQ(run["ranks"][1]["worker"], "vm-1-1");
  EXPECT_EQ(run["ranks"][1]["data"], 1);
  EXPECT_EQ(run["ranks"][0]["measured_peak"], 1900);
  EXPECT_TRUE(run["ranks"][0]["heartbeat_age"].is_null());
  ASSERT_EQ(run["events"].size(), 2u);
  EXPECT_EQ(run["events"][0]["event"], "run_over");
  EXPECT_EQ(run["events"][1]["time"], 1795249380.5);
  EXPECT_EQ(run["checkpoints"], Json::parse(R"([{"step":6}])"));
  EXPECT_EQ(run["per_class"][0]["name"], "</script><b>");
  ASSERT_EQ(run["pictures"].size(), 2u);
  EXPECT_FALSE(run["plan"]["lines"].empty());
  EXPECT_FALSE(run["plan"]["other_layouts"].empty());
}

TEST(RunRecord, SettingsAreNamedAsTheirFlags) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  const Json settings = run_of(record)["settings"];
  const auto value = [&](const std::string& name) -> std::string {
    for (const Json& setting : settings) {
      if (setting[0] == name) return setting[1];
    }
    return "none";
  };
  EXPECT_EQ(value("cfg"), "yolov5n");
  EXPECT_EQ(value("img"), "64");
  EXPECT_EQ(value("batch"), "16");
}

TEST(RunRecord, ARunWithoutARecordedEndWasKilledAndShowsTheResumeCommand) {
  const RunDirectory folder;
  folder.write("events.jsonl",
               "{\"event\":\"join\",\"step\":0,\"reason\":\"a worker\"}\n");
  RunRecord record("exp", folder.path());
  const Json run = run_of(record);
  EXPECT_EQ(run["state"], "stopped");
  EXPECT_EQ(run["command"],
            "headroom train --resume " + folder.path().string());
  EXPECT_EQ(run_of(record, nullptr, /*is_held=*/true)["state"], "running");
  EXPECT_TRUE(run_of(record, nullptr, /*is_held=*/true)["command"].is_null());
}

TEST(RunRecord, ALiveStatusOutranksTheFiles) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  coordinator::RunStatus status;
  status.state = coordinator::RunPhase::kRunning;
  status.reason = "all 2 workers have joined";
  status.progress.step = 8;
  status.progress.num_steps = 12;
  status.progress.num_epochs = 4;
  status.progress.epoch = 2;
  status.progress.images_per_second = 50;
  coordinator::MemberStatus member;
  member.worker_id = "new-1";
  member.hostname = "other";
  member.rank = 1;
  member.heartbeat_age_seconds = 0.25;
  member.state = coordinator::MemberActivity::kRunning;
  status.members = {member};
  const Json run = run_of(record, &status);
  EXPECT_EQ(run["state"], "running");
  EXPECT_EQ(run["progress"]["step"], 8);
  EXPECT_EQ(run["progress"]["steps"], 12);
  EXPECT_EQ(run["progress"]["epoch"], 3);
  EXPECT_DOUBLE_EQ(run["progress"]["eta_seconds"], 4 * 16 / 50.0);
  EXPECT_EQ(run["ranks"][1]["host"], "other");
  EXPECT_EQ(run["ranks"][1]["state"], "running");
  EXPECT_EQ(run["ranks"][1]["heartbeat_age"], 0.25);
}

TEST(RunRecord, ARunThatGrowsIsReadOn) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  run_of(record);
  folder.append("steps.jsonl", step_line(6) + "\n" + step_line(7).substr(0, 9));
  folder.append("results.csv", "2,0.09,0.6,0.4\n3,0.0");
  const Json run = run_of(record);
  EXPECT_EQ(run["progress"]["step"], 7);
  EXPECT_EQ(run["epochs"]["rows"].size(), 3u);
  const Json overview = Json::parse(record.overview());
  EXPECT_EQ(overview["best"]["epoch"], 2);
  EXPECT_EQ(overview["img"], 64);
  EXPECT_EQ(overview["model"], "yolov5n");
}

TEST(RunRecord, BrokenFilesLeaveUnknownValuesNull) {
  const headroom::testing::TemporaryFolder folder;
  folder.write("run.yaml", "cfg: [");
  folder.write("plan.json", "{");
  folder.write("events.jsonl",
               "{\"event\":\"join\",\"reason\":\"a\xff\xfe\"}\n");
  folder.write("summary.json", "[]");
  RunRecord record("odd", folder.path());
  const Json run = run_of(record);
  EXPECT_EQ(run["state"], "stopped");
  EXPECT_TRUE(run["layout"].is_null());
  EXPECT_TRUE(run["ranks"].empty());
  EXPECT_EQ(run["events"].size(), 1u);
  EXPECT_FALSE(record.timeline(0).has_value());
}

TEST(RunRecord, NestingThatIsTooDeepIsRefused) {
  const RunDirectory folder;
  const auto nested = [](int levels) {
    const auto count = static_cast<size_t>(levels);
    return std::string(count, '[') + std::string(count, ']');
  };
  for (const int levels : {70, 200'000}) {
    folder.append("events.jsonl",
                  "{\"event\":\"odd\",\"a\":" + nested(levels) + "}\n");
    folder.write("summary.json", "{\"per_class\":[" + nested(levels) + "]}");
    RunRecord record("exp", folder.path());
    const Json run = run_of(record);
    EXPECT_EQ(run["num_events"], 2) << levels;
    EXPECT_TRUE(run["per_class"].is_null()) << levels;
  }
  folder.append("events.jsonl",
                "{\"event\":\"odd\",\"a\":" + nested(60) + "}\n");
  RunRecord record("exp", folder.path());
  EXPECT_EQ(run_of(record)["num_events"], 3);
}

TEST(RunRecord, NumbersThatWereNotCountedAreUnknown) {
  const RunDirectory folder;
  folder.write("results.csv",
               "epoch,metrics/mAP_0.5,metrics/mAP_0.5:0.95\n1e300,0.5,0.3\n");
  folder.append("steps.jsonl",
                "{\"step\":6,\"epoch\":1e300,\"memory\":[{\"rank\":0,"
                "\"measured_peak_bytes\":1e300}]}\n");
  RunRecord record("exp", folder.path());
  const Json run = run_of(record);
  EXPECT_TRUE(run["epochs"]["rows"].empty());
  EXPECT_EQ(run["progress"]["epoch"], 0);
  EXPECT_TRUE(run["ranks"][0]["measured_peak"].is_null());
}

TEST(RunRecord, ResultsOfAnOlderRunInTheFolderAreNotTheNewRuns) {
  const RunDirectory folder;
  folder.write(".older-run", "");
  RunRecord record("exp", folder.path());
  const auto expect_results = [&](const Json& run, bool are_there) {
    EXPECT_EQ(run["progress"]["step"], are_there ? 6 : 0);
    EXPECT_EQ(run["epochs"]["rows"].size(), are_there ? 2u : 0u);
    EXPECT_EQ(run["per_class"].is_null(), !are_there);
  };
  const coordinator::RunStatus waiting;
  expect_results(run_of(record), true);
  expect_results(run_of(record, nullptr, /*is_held=*/true), false);
  expect_results(run_of(record, &waiting), false);
  std::filesystem::remove(folder.path() / ".older-run");
  expect_results(run_of(record, &waiting), true);
}

TEST(RunRecord, StepsAreGivenWithTheirMemory) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  record.refresh(nullptr, false);
  const Json steps = Json::parse(record.steps(1500, 2));
  EXPECT_EQ(steps["total"], 6);
  EXPECT_EQ(steps["columns"].size(), 9u);
  ASSERT_EQ(steps["rows"].size(), 4u);
  EXPECT_EQ(steps["rows"][0][0], 2);
  EXPECT_EQ(steps["rows"][0][5], 2.5);
  ASSERT_EQ(steps["memory"].size(), 2u);
  EXPECT_TRUE(steps["memory"][1]["predicted"][0].is_null());
  EXPECT_EQ(steps["memory"][1]["measured"][0], 1800);
}

TEST(RunRecord, TheTimelineReachesThePredictedPeakOfAStep) {
  const RunDirectory folder;
  RunRecord record("exp", folder.path());
  record.refresh(nullptr, false);
  const plan::Plan plan = small_plan(small_config());
  for (int rank = 0; rank < 2; ++rank) {
    const Json timeline = Json::parse(record.timeline(rank).value());
    const int64_t peak =
        plan.predicted_phase_bytes[static_cast<size_t>(rank)].training;
    EXPECT_EQ(timeline["peak"], peak);
    int64_t fullest = 0;
    std::set<std::string> phases;
    for (const Json& point : timeline["points"]) {
      fullest = std::max(fullest, point["kept"].get<int64_t>() +
                                      point["scratch"].get<int64_t>());
      phases.insert(point["phase"]);
    }
    EXPECT_EQ(fullest, peak);
    EXPECT_EQ(phases,
              (std::set<std::string>{"forward", "loss", "backward", "commit"}));
  }
  EXPECT_FALSE(record.timeline(2).has_value());
}

// Nothing is derived from a plan that does not fit the model.
TEST(RunRecord, APlanOfAnotherModelIsReportedAndEndsNothing) {
  const RunDirectory folder;
  configs::RunConfig config = small_config();
  config.layout = plan::parse_layout("pipeline=2");
  plan::Plan plan = small_plan(config);
  plan.stage_begins = {0, 5000};
  folder.write("plan.json", plan::plan_to_json(plan));
  RunRecord record("exp", folder.path());
  const Json run = run_of(record);
  EXPECT_TRUE(run["plan"]["other_layouts"].empty());
  if (const auto timeline = record.timeline(0)) {
    EXPECT_NE(timeline->find("do not belong together"), std::string::npos);
  }
}

TEST(RunsOf, AFolderHasItsRunsAndARunItself) {
  const RunDirectory folder;
  EXPECT_EQ(runs_of(folder.path()).size(), 1u);
  EXPECT_EQ(runs_of(folder.path())[0].id, "exp");
  std::filesystem::create_directory(folder.parent() / "more");
  std::filesystem::copy(folder.path(), folder.parent() / "more" / "exp2",
                        std::filesystem::copy_options::recursive);
  std::set<std::string> ids;
  for (const RunPlace& place : runs_of(folder.parent())) ids.insert(place.id);
  EXPECT_EQ(ids, (std::set<std::string>{"exp", "more/exp2"}));
}

TEST(RunsOf, AFolderWithoutRunsIsRefused) {
  const headroom::testing::TemporaryFolder folder;
  EXPECT_THROW(runs_of(folder.path()), Error);
  EXPECT_THROW(runs_of(folder.path() / "none"), Error);
}

}  // namespace
}  // namespace headroom::page
