#include "deploy/cli/show/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr int64_t kSamples = 10;
constexpr LedgerRules kRules{
    .seed = 7, .global_batch_size = 4, .order_is_known = true};

// The records of `count` steps. An epoch has 3 steps, of 4, 4 and 2 samples.
std::vector<Json> steps(int64_t count) {
  std::vector<Json> lines;
  for (int64_t step = 0; step < count; ++step) {
    const sampling::EpochStep at =
        sampling::epoch_step(step, kSamples, kRules.global_batch_size);
    lines.push_back(
        {{"step", step},
         {"epoch", at.epoch},
         {"generation", 1 + step / 4},
         {"samples", sampling::shuffled_samples(kRules.seed, at, kSamples)},
         {"epoch_samples", kSamples}});
  }
  return lines;
}

std::string text_of(const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump() + "\n";
  return text;
}

LedgerReport checked(const std::string& text,
                     const LedgerRules& rules = kRules) {
  const testing::TemporaryFolder folder;
  return check_ledger(rules, folder.write("steps.jsonl", text));
}

TEST(Ledger, ARunIsExactWithItsUnfinishedEpoch) {
  const LedgerReport report = checked(text_of(steps(8)));
  EXPECT_TRUE(report.exact()) << ledger_text(report);
  EXPECT_EQ(report.num_steps, 8);
  EXPECT_EQ(report.num_samples, kSamples);
  EXPECT_EQ(report.complete_epochs, 2);
  EXPECT_EQ(report.used_in_open_epoch, 8);
  EXPECT_EQ(report.generations, 2u);
  EXPECT_THAT(ledger_text(report), HasSubstr("exact: every step once"));
  EXPECT_TRUE(Json::parse(ledger_json(report)).at("exact").get<bool>());
}

// Records of samples that were drawn by weight: each epoch has another table of
// weights, samples repeat, and samples 0 and 9 are never drawn.
std::vector<Json> drawn_steps(int64_t count) {
  std::vector<Json> lines = steps(count);
  const sampling::WeightedSampler tables[] = {
      {kRules.seed, {0, 1, 5, 1, 1, 1, 1, 1, 1, 0}},
      {kRules.seed, {0, 1, 1, 1, 1, 9, 1, 1, 1, 0}},
      {kRules.seed, {0, 1, 1, 2, 1, 1, 2, 1, 1, 0}}};
  for (int64_t step = 0; step < count; ++step) {
    const sampling::EpochStep at =
        sampling::epoch_step(step, kSamples, kRules.global_batch_size);
    lines[step]["samples"] = sampling::samples_at(
        [&](int64_t place) { return tables[at.epoch].sample(at.epoch, place); },
        at.positions);
  }
  return lines;
}

constexpr LedgerRules kByWeight{.seed = kRules.seed,
                                .global_batch_size = 4,
                                .order_is_known = true,
                                .by_weight = true};

TEST(Ledger, ByWeightSamplesMayComeAgain) {
  const std::string text = text_of(drawn_steps(8));
  EXPECT_FALSE(checked(text).exact());
  const LedgerReport report = checked(text, kByWeight);
  EXPECT_TRUE(report.exact()) << ledger_text(report);
  EXPECT_EQ(report.complete_epochs, 2);
  EXPECT_EQ(report.used_in_open_epoch, 8);
  EXPECT_THAT(ledger_text(report),
              HasSubstr("With --image-weights one may come again"));
  EXPECT_TRUE(
      Json::parse(ledger_json(report)).at("drawn_by_weight").get<bool>());
}

TEST(Ledger, ByWeightSamplesRiseWithTheirDraws) {
  // Three ledgers are wrong. One has the samples in the order without weights,
  // one has the samples of two steps exchanged, and one has the draws of the
  // epoch before.
  std::vector<Json> lines = drawn_steps(6);
  EXPECT_FALSE(checked(text_of(steps(6)), kByWeight).exact());
  std::swap(lines[0]["samples"], lines[1]["samples"]);
  const LedgerReport exchanged = checked(text_of(lines), kByWeight);
  EXPECT_FALSE(exchanged.exact());
  EXPECT_THAT(exchanged.problems[0], HasSubstr("but its draw lies "));
  lines = drawn_steps(6);
  for (int64_t i = 3; i < 6; ++i) lines[i]["samples"] = lines[i - 3]["samples"];
  EXPECT_FALSE(checked(text_of(lines), kByWeight).exact());
  lines = drawn_steps(6);
  lines[4]["samples"][2] = 0;  // lower than every drawn sample
  EXPECT_EQ(checked(text_of(lines), kByWeight).num_problems, 1);
}

TEST(Ledger, ByWeightALostOrDoubledLineIsNamed) {
  std::vector<Json> lines = drawn_steps(7);
  lines.erase(lines.begin() + 1);
  const LedgerReport lost = checked(text_of(lines), kByWeight);
  ASSERT_EQ(lost.num_problems, 2) << ledger_text(lost);
  EXPECT_EQ(lost.problems[0], "line 2: step 2 follows step 0: 1 step missing");
  EXPECT_EQ(lost.problems[1], "line 2: epoch 0 ends with 6 samples, not 10");
  lines = drawn_steps(2);
  lines.push_back(lines[1]);
  EXPECT_FALSE(checked(text_of(lines), kByWeight).exact());
  lines = drawn_steps(1);
  lines[0]["samples"].push_back(5);
  EXPECT_FALSE(checked(text_of(lines), kByWeight).exact());
}

// The records of a run of large batches.
std::vector<Json> ranges(int64_t count) {
  std::vector<Json> lines = steps(count);
  for (int64_t step = 0; step < count; ++step) {
    const sampling::EpochStep at =
        sampling::epoch_step(step, kSamples, kRules.global_batch_size);
    lines[step]["samples"] = {{"seed", kRules.seed},
                              {"epoch", at.epoch},
                              {"begin", at.positions.begin},
                              {"end", at.positions.end}};
  }
  return lines;
}

constexpr LedgerRules kUnknownOrder{
    .seed = kRules.seed, .global_batch_size = 4, .order_is_known = false};

TEST(Ledger, PositionsAreAsGoodAsLists) {
  for (const LedgerRules& rules : {kRules, kUnknownOrder, kByWeight}) {
    // An older program wrote the first lines.
    std::vector<Json> lines = ranges(8);
    const std::vector<Json> older = rules.by_weight ? drawn_steps(8) : steps(8);
    std::copy_n(older.begin(), 2, lines.begin());
    const LedgerReport report = checked(text_of(lines), rules);
    EXPECT_TRUE(report.exact()) << ledger_text(report);
    EXPECT_EQ(report.complete_epochs, 2);
    EXPECT_EQ(report.used_in_open_epoch, 8);
    const bool is_known = rules.order_is_known && !rules.by_weight;
    EXPECT_EQ(report.names_samples, is_known);
    EXPECT_THAT(ledger_text(report),
                HasSubstr(is_known ? "every sample of each complete epoch once"
                                   : "every position of each complete epoch"));
  }
}

TEST(Ledger, ALostLineWithPositionsIsNamed) {
  std::vector<Json> lines = ranges(7);
  lines.erase(lines.begin() + 1);
  const LedgerReport known = checked(text_of(lines));
  ASSERT_EQ(known.num_problems, 2) << ledger_text(known);
  EXPECT_EQ(known.problems[0], "line 2: step 2 follows step 0: 1 step missing");
  EXPECT_EQ(known.problems[1], checked(text_of([] {
                                 std::vector<Json> listed = steps(7);
                                 listed.erase(listed.begin() + 1);
                                 return listed;
                               }()))
                                   .problems[1]);
  EXPECT_THAT(checked(text_of(lines), kUnknownOrder).problems,
              ElementsAre("line 2: step 2 follows step 0: 1 step missing",
                          "line 2: epoch 0 ends with 6 samples, not 10"));
}

TEST(Ledger, OtherPositionsAreNamed) {
  for (const auto& [key, value] : std::map<std::string, int64_t>{
           {"seed", 8}, {"epoch", 1}, {"begin", 3}, {"end", 1'000'000'000}}) {
    std::vector<Json> lines = ranges(2);
    lines[1]["samples"][key] = value;
    const LedgerReport report = checked(text_of(lines));
    ASSERT_EQ(report.num_problems, 1) << key;
    EXPECT_THAT(report.problems[0],
                HasSubstr(", not positions 4 to 8 of epoch 0 with seed 7"));
  }
}

TEST(Ledger, AnEpochThatHasEndedIsComplete) {
  const LedgerReport report = checked(text_of(steps(6)));
  EXPECT_TRUE(report.exact());
  EXPECT_EQ(report.complete_epochs, 2);
  EXPECT_EQ(report.used_in_open_epoch, 0);
}

TEST(Ledger, NothingYetIsExact) {
  EXPECT_TRUE(checked("").exact());
  EXPECT_EQ(checked("").num_steps, 0);
}

TEST(Ledger, ALostLineIsNamedAndSoAreItsSamples) {
  std::vector<Json> lines = steps(7);
  lines.erase(lines.begin() + 1);
  const LedgerReport report = checked(text_of(lines));
  ASSERT_EQ(report.num_problems, 2) << ledger_text(report);
  EXPECT_EQ(report.problems[0],
            "line 2: step 2 follows step 0: 1 step missing");
  EXPECT_THAT(report.problems[1],
              HasSubstr("line 2: epoch 0 ends without 4 samples: "));
  EXPECT_EQ(report.complete_epochs, 1);
}

TEST(Ledger, ADoubledLineIsNamedWithEachSampleThatItUsesAgain) {
  std::vector<Json> lines = steps(2);
  lines.push_back(lines[1]);
  const LedgerReport report = checked(text_of(lines));
  ASSERT_EQ(report.num_problems, 5) << ledger_text(report);
  EXPECT_EQ(report.problems[0],
            "line 3: step 1 was there before: the next is step 2");
  EXPECT_THAT(report.problems[1], HasSubstr("before, by line 2"));
}

TEST(Ledger, LinesInAnotherOrderAreNamed) {
  std::vector<Json> lines = steps(3);
  std::swap(lines[0], lines[1]);
  const LedgerReport report = checked(text_of(lines));
  EXPECT_THAT(report.problems,
              ElementsAre("line 1: step 1 follows step -1: 1 step missing",
                          "line 2: step 0 was there before: the next is step "
                          "2"));
}

TEST(Ledger, ASampleThatWasExchangedIsNamed) {
  std::vector<Json> lines = steps(3);
  const int64_t other = lines[2]["samples"][0];
  const int64_t right = lines[1]["samples"][3];
  lines[1]["samples"][3] = other;
  const LedgerReport report = checked(text_of(lines));
  EXPECT_EQ(report.problems[0], "line 2: step 1 used sample " +
                                    std::to_string(other) +
                                    " where the run's order has " +
                                    std::to_string(right) + " (position 3)");
  EXPECT_THAT(report.problems,
              ::testing::Contains("line 3: sample " + std::to_string(other) +
                                  " was used in epoch 0 before, by line 2"));
  EXPECT_THAT(report.problems,
              ::testing::Contains("line 3: epoch 0 ends without 1 sample: " +
                                  std::to_string(right)));
}

TEST(Ledger, AMissingSampleIsNamed) {
  std::vector<Json> lines = steps(3);
  lines[1]["samples"].erase(0);
  EXPECT_EQ(checked(text_of(lines)).problems[0],
            "line 2: step 1 has 3 samples, not 4");
}

TEST(Ledger, AnotherSeedIsAnotherRun) {
  LedgerRules rules = kRules;
  rules.seed = 8;
  EXPECT_EQ(checked(text_of(steps(3)), rules).num_problems, 3);
}

TEST(Ledger, WithoutAKnownOrderEachSampleIsStillUsedOnce) {
  LedgerRules rules = kRules;
  rules.order_is_known = false;
  std::vector<Json> lines = steps(4);
  std::swap(lines[0]["samples"][0], lines[1]["samples"][0]);
  EXPECT_TRUE(checked(text_of(lines), rules).exact());
  lines[0]["samples"][0] = lines[1]["samples"][0];
  EXPECT_EQ(checked(text_of(lines), rules).num_problems, 2);
}

TEST(Ledger, ADataSetThatChangedIsNamed) {
  std::vector<Json> lines = steps(2);
  lines[1]["epoch_samples"] = 11;
  EXPECT_THAT(
      checked(text_of(lines)).problems,
      ElementsAre("line 2: the data set has 11 samples, before it had 10"));
}

TEST(Ledger, AGenerationNeverFalls) {
  std::vector<Json> lines = steps(3);
  lines[1]["generation"] = 3;
  lines[2]["generation"] = 2;
  EXPECT_THAT(checked(text_of(lines)).problems,
              ElementsAre("line 3: generation 2 after generation 3"));
  lines[2]["generation"] = 1;  // as after a resume
  EXPECT_TRUE(checked(text_of(lines)).problems.empty());
}

TEST(Ledger, AnotherEpochThanTheStepsIsNamed) {
  std::vector<Json> lines = steps(2);
  lines[1]["epoch"] = 1;
  EXPECT_THAT(checked(text_of(lines)).problems,
              ElementsAre("line 2: step 1 belongs to epoch 0, not 1"));
}

TEST(Ledger, AnInvalidRecordIsNamed) {
  std::vector<Json> lines = steps(3);
  lines[1].erase("samples");
  const std::string text = text_of(lines) + "{\"step\": 3,\n";
  const LedgerReport report = checked(text);
  EXPECT_THAT(report.problems[0], HasSubstr("line 2: no record of a step"));
  EXPECT_THAT(report.problems[2], HasSubstr("line 4: no record of a step"));
}

TEST(Ledger, ALineThatIsStillBeingWrittenIsNoContradiction) {
  const LedgerReport report = checked(text_of(steps(3)) + "{\"step\":3,\"ep");
  EXPECT_TRUE(report.exact());
  EXPECT_TRUE(report.torn_last_line);
  EXPECT_EQ(report.num_steps, 3);
}

TEST(Ledger, ManyContradictionsAreCounted) {
  std::vector<Json> lines = steps(60);
  for (Json& line : lines) line["generation"] = 1;
  for (size_t i = 0; i < 59; i += 1) lines[i]["epoch"] = 99;
  const LedgerReport report = checked(text_of(lines));
  EXPECT_EQ(report.problems.size(), LedgerReport::kMaxProblems);
  EXPECT_EQ(report.num_problems, 59);
  EXPECT_THAT(ledger_text(report), HasSubstr("and 39 more"));
}

}  // namespace
}  // namespace headroom::cli
