#include "deploy/page/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "deploy/page/run_shelf.h"
#include "deploy/records/run_places.h"
#include "parallel/base/check.h"
#include "tests/deploy/page/run_directory_fixture.h"

namespace headroom::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Json = nlohmann::json;

Json document_of(RunRecord& record,
                 const std::optional<LiveStatus>& live = std::nullopt,
                 bool is_held = false, size_t most_events = kMostEvents) {
  record.refresh(live, is_held);
  return Json::parse(record.document(most_events));
}

Json plan_of(RunRecord& record) {
  record.refresh(std::nullopt, false);
  return Json::parse(record.plan());
}

RunRecord record_of(const std::filesystem::path& folder) {
  return RunRecord(records::RunPlace{"exp", folder});
}

int64_t lines_in(const Json& text) {
  return std::ranges::count(text.get<std::string>(), '\n');
}

TEST(RunRecord, ADocumentHasTheTextsOfTheFilesAndWhatTheyDefine) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  const Json run = document_of(record);
  EXPECT_EQ(run["id"], "exp");
  EXPECT_EQ(run["held"], false);
  EXPECT_TRUE(run["live"].is_null());
  EXPECT_EQ(run["config"]["batch"], 16);
  EXPECT_EQ(run["config"]["epochs"], 2);
  EXPECT_EQ(run["plan"]["layout"]["data_parallel_size"], 2);
  EXPECT_EQ(run["plan"]["predicted_peak_bytes"].size(), 2u);
  EXPECT_EQ(lines_in(run["events"]), 2);
  EXPECT_EQ(lines_in(run["results"]), 3);
  EXPECT_EQ(
      Json::parse(run["summary"].get<std::string>())["per_class"][0]["name"],
      "</script><b>");
  const Json last = Json::parse(run["last_step"].get<std::string>());
  EXPECT_EQ(last["step"], 5);
  EXPECT_TRUE(last["samples"].empty());
  EXPECT_EQ(run["checkpoints"], Json::array({6}));
  EXPECT_EQ(run["resume"], "headroom train --resume " + folder.path().string());
  EXPECT_EQ(run["pictures"].size(), 2u);
}

TEST(RunRecord, SettingsAreNamedAsTheirFlags) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  const Json settings = plan_of(record)["settings"];
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

TEST(RunRecord, ThePlanIsInWordsWithTheLayoutsThatWereNotChosen) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  const Json plan = plan_of(record);
  EXPECT_FALSE(plan["lines"].empty());
  EXPECT_FALSE(plan["other_layouts"].empty());
}

TEST(RunRecord, ALivePlanOutranksTheFile) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  configs::RunConfig config = small_config();
  config.layout = plan::parse_layout("pipeline=2");
  const LiveStatus live{R"({"state":"running","events":[1]})",
                        small_plan(config)};
  const Json run = document_of(record, live);
  EXPECT_EQ(run["live"], Json::parse(R"({"state":"running"})"));
  EXPECT_EQ(run["plan"]["layout"]["pipeline_parallel_size"], 2);
}

TEST(RunRecord, TheStampChangesWithTheFilesThatThePageDraws) {
  const RunDirectory folder;
  std::set<std::string> stamps = {stamp_of(folder.path())};
  folder.append("events.jsonl", "{\"event\":\"join\"}\n");
  stamps.insert(stamp_of(folder.path()));
  folder.append("results.csv", "2,0.09,0.6,0.4\n");
  stamps.insert(stamp_of(folder.path()));
  // The system's clock for file times advances in steps of some milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  folder.write("PR_curve.png", "png");
  stamps.insert(stamp_of(folder.path()));
  EXPECT_EQ(stamps.size(), 4u);
  folder.append("steps.jsonl", step_line(6) + "\n");
  EXPECT_TRUE(stamps.contains(stamp_of(folder.path())));
}

TEST(RunRecord, OfManyEventsTheFirstTheGenerationAndTheNewestAreLeft) {
  const RunDirectory folder;
  const auto event = [](const std::string& kind, const std::string& more) {
    return "{\"event\":\"" + kind + "\"" + more + "}\n";
  };
  std::string text = event("plan", "") + event("generation", ",\"a\":1");
  text += event("generation",
                ",\"workers\":[" + std::string(70'000, ' ') + "],\"a\":2");
  for (int i = 0; i < 600; ++i) text += event("epoch", "");
  text += event("odd", ",\"list\":[\"" + std::string(70'000, 'x') +
                           "\"],\"reason\":\"r\"");
  folder.write("events.jsonl", text + "{\"event\":\"half");
  RunRecord record = record_of(folder.path());
  const std::string all = document_of(record)["events"];
  EXPECT_EQ(lines_in(all), 502);
  EXPECT_TRUE(all.starts_with(event("plan", "")));
  EXPECT_THAT(all, Not(HasSubstr("\"a\":1")));
  EXPECT_THAT(all, HasSubstr("\"a\":2"));
  EXPECT_TRUE(all.ends_with(event("odd", ",\"reason\":\"r\"")));
  EXPECT_EQ(lines_in(document_of(record, {}, false, 1)["events"]), 3);
}

TEST(RunRecord, FilesThatCannotBeReadGiveADocumentWithFewerParts) {
  const headroom::testing::TemporaryFolder folder;
  folder.write("run.yaml", "cfg: [");
  folder.write("plan.json", "{");
  folder.write("events.jsonl",
               "{\"event\":\"join\",\"reason\":\"a\xff\xfe\"}\n");
  RunRecord record = record_of(folder.path());
  const Json run = document_of(record);
  EXPECT_TRUE(run["config"].is_null());
  EXPECT_TRUE(run["plan"].is_null());
  EXPECT_EQ(lines_in(run["events"]), 1);
  EXPECT_EQ(run["results"], "");
  EXPECT_FALSE(record.timeline(0).has_value());
}

TEST(RunRecord, ARunThatHoldsItsFolderDoesNotShowAnOlderRunsResults) {
  const RunDirectory folder;
  folder.write(".older-run", "");
  RunRecord record = record_of(folder.path());
  const auto expect_results = [&](const Json& run, bool are_there) {
    EXPECT_EQ(run.contains("last_step"), are_there);
    EXPECT_EQ(run.contains("results"), are_there);
    EXPECT_EQ(run.contains("summary"), are_there);
    EXPECT_EQ(Json::parse(record.steps(100, 0))["total"], are_there ? 6 : 0);
  };
  const LiveStatus waiting{"{}", {}};
  expect_results(document_of(record), true);
  expect_results(document_of(record, {}, /*is_held=*/true), false);
  expect_results(document_of(record, waiting), false);
  std::filesystem::remove(folder.path() / ".older-run");
  expect_results(document_of(record, waiting), true);
}

TEST(RunRecord, StepsAreGivenWithTheirMemory) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  record.refresh(std::nullopt, false);
  const Json steps = Json::parse(record.steps(1500, 2));
  EXPECT_EQ(steps["total"], 6);
  EXPECT_EQ(steps["epoch_samples"], 48);
  EXPECT_EQ(steps["bytes"], steps_bytes(folder.path()));
  EXPECT_EQ(steps["columns"].size(), 9u);
  ASSERT_EQ(steps["rows"].size(), 4u);
  EXPECT_EQ(steps["rows"][0][0], 2);
  EXPECT_EQ(steps["rows"][0][6], 2.5);
  ASSERT_EQ(steps["memory"].size(), 2u);
  EXPECT_TRUE(steps["memory"][1]["predicted"][0].is_null());
  EXPECT_EQ(steps["memory"][1]["measured"][0], 1800);
}

TEST(RunRecord, BytesThatNoNumberRepresentsAreUnknown) {
  const RunDirectory folder;
  folder.append("steps.jsonl",
                "{\"step\":6,\"epoch\":1e300,\"memory\":[{\"rank\":0,"
                "\"measured_peak_bytes\":1e300}]}\n");
  RunRecord record = record_of(folder.path());
  record.refresh(std::nullopt, false);
  const Json steps = Json::parse(record.steps(1500, 6));
  EXPECT_TRUE(steps["memory"][0]["measured"][0].is_null());
}

TEST(RunRecord, TheTimelineReachesThePredictedPeakOfAStep) {
  const RunDirectory folder;
  RunRecord record = record_of(folder.path());
  record.refresh(std::nullopt, false);
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

TEST(RunRecord, APlanOfAnotherModelHasNoOtherLayouts) {
  const RunDirectory folder;
  configs::RunConfig config = small_config();
  config.layout = plan::parse_layout("pipeline=2");
  plan::Plan plan = small_plan(config);
  plan.stage_begins = {0, 5000};
  folder.write("plan.json", plan::plan_to_json(plan));
  RunRecord record = record_of(folder.path());
  EXPECT_TRUE(plan_of(record)["other_layouts"].empty());
  if (const auto timeline = record.timeline(0)) {
    EXPECT_NE(timeline->find("do not belong together"), std::string::npos);
  }
}

TEST(RunRecord, ABatchThatNoRunMayHaveIsNotPlanned) {
  const RunDirectory folder;
  configs::RunConfig config = small_config();
  config.global_batch_size = 2'000'000'000;
  folder.write("run.yaml", configs::to_yaml(config));
  RunRecord record = record_of(folder.path());
  EXPECT_THAT(plan_of(record)["no_other_layouts"],
              ::testing::HasSubstr("at most 1000000"));
}

TEST(RunsOf, AFolderHasItsRunsAndARunItself) {
  const RunDirectory folder;
  EXPECT_EQ(records::runs_of(folder.path()).size(), 1u);
  EXPECT_EQ(records::runs_of(folder.path())[0].id, "exp");
  std::filesystem::create_directory(folder.parent() / "more");
  std::filesystem::copy(folder.path(), folder.parent() / "more" / "exp2",
                        std::filesystem::copy_options::recursive);
  std::set<std::string> ids;
  for (const records::RunPlace& place : records::runs_of(folder.parent()))
    ids.insert(place.id);
  EXPECT_EQ(ids, (std::set<std::string>{"exp", "more/exp2"}));
}

TEST(RunsOf, AFolderWithoutRunsIsRefused) {
  const headroom::testing::TemporaryFolder folder;
  EXPECT_THROW(records::runs_of(folder.path()), Error);
  EXPECT_THROW(records::runs_of(folder.path() / "none"), Error);
}

RunShelf shelf_of(int runs) {
  RunSource source;
  source.places = [runs] {
    std::vector<records::RunPlace> places;
    for (int run = 0; run < runs; ++run) {
      places.push_back({std::to_string(run), "/nowhere"});
    }
    return places;
  };
  source.refresh_interval = std::chrono::hours(1);
  return RunShelf(std::move(source));
}

size_t num_kept(const std::vector<std::weak_ptr<const std::string>>& answers) {
  return static_cast<size_t>(std::ranges::count_if(
      answers, [](const auto& answer) { return !answer.expired(); }));
}

TEST(RunShelf, OnlyTheAnswersOfTheNewestRunsAreKept) {
  RunShelf shelf = shelf_of(100);
  std::vector<std::weak_ptr<const std::string>> answers;
  for (int run = 0; run < 100; ++run) {
    answers.push_back(shelf.answer(std::to_string(run), "short",
                                   [](RunRecord&) { return "text"; }));
  }
  EXPECT_EQ(num_kept(answers), 32u);
  EXPECT_FALSE(answers.back().expired());
}

TEST(RunShelf, LongAnswersTakeABoundedMemory) {
  constexpr size_t kBytes = 10 << 20;
  const auto make = [](RunRecord&) { return std::string(kBytes, ' '); };
  RunShelf shelf = shelf_of(4);
  std::vector<std::weak_ptr<const std::string>> answers;
  for (int question = 0; question < 10; ++question) {
    for (const char* run : {"0", "1"}) {
      answers.push_back(shelf.answer(run, std::to_string(question), make));
    }
  }
  EXPECT_LE(num_kept(answers), 7u);
  // An answer larger than the whole cache is returned, and stays in the cache
  // only until the next answer is made.
  answers.clear();
  answers.push_back(shelf.answer(
      "2", "long", [](RunRecord&) { return std::string(70 << 20, ' '); }));
  EXPECT_EQ(answers.front().lock()->size(), size_t{70} << 20);
  EXPECT_NE(shelf.answer("2", "next", make), nullptr);
  EXPECT_EQ(num_kept(answers), 0u);
}

}  // namespace
}  // namespace headroom::page
