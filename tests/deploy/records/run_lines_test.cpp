#include "deploy/records/run_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/base/regular_file.h"
#include "tests/support/temporary_folder.h"

namespace headroom::records {
namespace {

TEST(LastEvents, AreTheNewestAndTheOldestOfThemFirst) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(last_events(folder.path(), 2).empty());
  const std::string newest =
      R"({"event":"b","rank":2,"warning":true,"exit_code":5,"state":"failed"})";
  folder.write("events.jsonl",
               "{\"event\":\"a\",\"step\":1}\n{\"step\":2}\n[3]\n" + newest +
                   "\n{\"step\":5");
  const auto events = last_events(folder.path(), 2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].step, 2);
  EXPECT_EQ(events[0].rank, -1);
  EXPECT_EQ(events[0].exit_code, std::nullopt);
  EXPECT_EQ(events[1].kind, "b");
  EXPECT_EQ(events[1].rank, 2);
  EXPECT_TRUE(events[1].warning);
  EXPECT_EQ(events[1].exit_code, 5);
  EXPECT_EQ(events[1].state, "failed");
  EXPECT_EQ(events[1].json, newest);
}

TEST(LastEvents, AreSearchedInTheLastMebibytes) {
  const testing::TemporaryFolder folder;
  folder.write("events.jsonl", "{\"step\":1}\n" + std::string(5 << 20, ' ') +
                                   "\n{\"step\":2}\n");
  const auto events = last_events(folder.path(), 5);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].step, 2);
}

TEST(FileText, HasABoundAndIsOfARegularFile) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(file_text(folder.write("small", "text")), "text");
  EXPECT_EQ(
      file_text(folder.write("large", std::string(kLargestWhole + 1, ' '))),
      "");
  EXPECT_EQ(file_text(folder.path() / "none"), "");
  EXPECT_EQ(file_text("/dev/zero"), "");
  EXPECT_EQ(last_lines("/dev/zero", 100), "");
  EXPECT_TRUE(object_in("/dev/zero").empty());
}

TEST(StepLine, HasTheLossesOfEitherHead) {
  const auto losses_of = [](const char* line) {
    return step_line(line, Samples::kLeftOut)->losses;
  };
  EXPECT_EQ(losses_of(R"({"step":0,"box":1,"obj":2,"cls":3})"),
            (NamedLosses{{"box", 1}, {"obj", 2}, {"cls", 3}}));
  EXPECT_EQ(losses_of(R"({"step":0,"box":1,"cls":2,"dfl":3})"),
            (NamedLosses{{"box", 1}, {"cls", 2}, {"dfl", 3}}));
}

TEST(StepLine, HasItsNumbersAndTheMemoryOfItsRanks) {
  const std::string line =
      R"({"step":7,"epoch":2,"generation":3,"box":0.5,"obj":"a","lr":[0.1,0.2],)"
      R"("samples":[5,1],"epoch_samples":48,"memory":[)"
      R"({"rank":0,"predicted_peak_bytes":null,"measured_peak_bytes":1800},)"
      R"({"rank":-1},{"rank":1e300},[1]]})";
  const auto step = step_line(line, Samples::kRead);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->step, 7);
  EXPECT_EQ(step->epoch, 2);
  EXPECT_EQ(step->generation, 3);
  EXPECT_EQ(step->epoch_samples, 48);
  EXPECT_EQ(step->losses, (NamedLosses{{"box", 0.5}}));
  EXPECT_EQ(step->lr, 0.1);
  EXPECT_TRUE(step->has_samples);
  EXPECT_EQ(step->samples, (std::vector<int64_t>{5, 1}));
  ASSERT_EQ(step->memory.size(), 1u);
  EXPECT_TRUE(std::isnan(step->memory[0].predicted_peak_bytes));
  EXPECT_EQ(step->memory[0].measured_peak_bytes, 1800);
  EXPECT_FALSE(step_line(line, Samples::kLeftOut)->has_samples);
}

TEST(StepLine, OfALargeBatchHasPositions) {
  const std::string line =
      R"({"step":7,"samples":{"seed":18446744073709551615,"epoch":2,"begin":512,)"
      R"("end":1024},"epoch_samples":4800,"images_per_second":90})";
  const auto step = step_line(line, Samples::kRead);
  EXPECT_TRUE(step->has_samples);
  EXPECT_EQ(step->range, (SampleRange{~uint64_t{0}, 2, 512, 1024}));
  EXPECT_EQ(step_line(line, Samples::kLeftOut)->images_per_second, 90);
  EXPECT_EQ(without_samples(line), line);
  EXPECT_FALSE(
      step_line(R"({"step":1,"samples":{"seed":1,"begin":2}})", Samples::kRead)
          ->has_samples);
}

TEST(StepLine, OtherLinesAreNone) {
  for (const char* line :
       {"", "{", "[1]", "{\"epoch\":1}", "{\"step\":1e300}", "no JSON"}) {
    EXPECT_FALSE(step_line(line, Samples::kLeftOut).has_value()) << line;
  }
  EXPECT_FALSE(step_line(R"({"step":1,"samples":[1,"a"]})", Samples::kRead)
                   ->has_samples);
}

TEST(LastStep, IsTheLastCompleteLineThatIsOne) {
  const testing::TemporaryFolder folder;
  EXPECT_FALSE(last_step(folder.path()).has_value());
  folder.write("steps.jsonl", "{\"step\":1}\n{\"step\":2}\n[3]\n{\"step\":4}");
  EXPECT_EQ(last_step(folder.path())->step, 2);
}

TEST(ObjectIn, IsEmptyUnlessTheFileHasAnObject) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(object_in(folder.path() / "none").empty());
  EXPECT_TRUE(object_in(folder.write("list", "[1]")).empty());
  EXPECT_TRUE(object_in(folder.write("half", "{\"a\":1")).empty());
  EXPECT_EQ(object_in(folder.write("whole", "{\"a\":1}")).at("a"), 1);
}

TEST(LastLines, AreTheCompleteOnesAmongTheLastBytes) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(last_lines(folder.path() / "none", 100), "");
  const auto file = folder.write("lines", "one\ntwo\nthree\nhalf");
  EXPECT_EQ(last_lines(file, 100), "one\ntwo\nthree\n");
  EXPECT_EQ(last_lines(file, 14), "two\nthree\n") << "two begins there";
  EXPECT_EQ(last_lines(file, 13), "three\n");
  EXPECT_EQ(last_lines(file, 5), "");
  EXPECT_EQ(lines_of("one\n\ntwo\nhalf"),
            (std::vector<std::string_view>{"one", "", "two"}));
}

TEST(WithoutSamples, TheListIsEmptyAndTheRestIsThere) {
  EXPECT_EQ(without_samples(R"({"step":1,"samples":[5,1],"lr":[2]})"),
            R"({"step":1,"samples":[],"lr":[2]})");
  for (const char* line : {R"({"step":1,"lr":[2]})", R"({"samples":[1,2)", "",
                           R"({"reason":"\"samples\":[1]","samples":3})"}) {
    EXPECT_EQ(without_samples(line), line);
  }
}

TEST(CheckpointsIn, AreThoseWithAManifestUnlessAnOlderRunLeftThem) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
  for (const char* name : {"step-12", "step-6", "other", "step-x"}) {
    folder.write(std::string("checkpoints/") + name + "/MANIFEST.json", "{}");
  }
  folder.write("checkpoints/step-18/state.safetensors", "");
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{6, 12}));
  folder.write(".older-run", "");
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
}

TEST(ShallowJson, BeyondDepth64IsRefused) {
  const auto nested = [](size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_TRUE(shallow_json(nested(60)).is_array());
  EXPECT_TRUE(shallow_json(nested(70)).is_discarded());
  EXPECT_TRUE(shallow_json(nested(1'000'000)).is_discarded());
}

}  // namespace
}  // namespace headroom::records
