#include "worker/step/weight_check.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/run_ranks.h"
#include "tests/worker/step/step_rank.h"

namespace headroom::step {
namespace {

at::Tensor numbers(int64_t count) {
  at::Tensor made = at::empty({count}, at::kFloat);
  for (int64_t i = 0; i < count; ++i) {
    made.data_ptr<float>()[i] = 1.0F / static_cast<float>(i + 1);
  }
  return made;
}

uint64_t digest(const std::vector<at::Tensor>& buffers) {
  return digest_of(buffers);
}

TEST(WeightDigest, EveryBitAtEveryPlaceCounts) {
  // More words than are summed at once.
  const at::Tensor buffer = numbers((1 << 18) + 1000);
  auto* const words = static_cast<uint32_t*>(buffer.mutable_data_ptr());
  std::set<uint64_t> digests = {digest({buffer})};
  EXPECT_TRUE(digests.contains(digest({buffer.clone()})));
  for (const int64_t word : {0, 1, 4097, (1 << 18) - 1, 1 << 18, 262'999}) {
    for (int bit = 0; bit < 32; ++bit) {
      words[word] ^= uint32_t{1} << bit;
      EXPECT_TRUE(digests.insert(digest({buffer})).second)
          << word << " " << bit;
      words[word] ^= uint32_t{1} << bit;
    }
  }
  std::swap(words[3], words[4]);
  EXPECT_TRUE(digests.insert(digest({buffer})).second);
}

TEST(WeightDigest, TakesBuffersInTheirOrderAndDoubles) {
  const at::Tensor one = numbers(10), other = numbers(7).add_(1);
  EXPECT_NE(digest({one, other}), digest({other, one}));
  const at::Tensor doubles = one.to(at::kDouble);
  const uint64_t before = digest({doubles});
  doubles.mul_(1 + 1e-15);
  EXPECT_NE(digest({doubles}), before);
  EXPECT_EQ(digest({}), 0u);
}

using Ranks = std::vector<int>;

struct Case {
  std::vector<std::optional<uint64_t>> digests;
  int stages;
  Ranks wrong, undecided;
  std::string reason;
};

TEST(WeightJudgement, OutvotedRanksAreWrong) {
  const auto none = std::nullopt;
  const std::string unclear =
      " have different weights, and no majority shows which of them computes "
      "wrong";
  const std::vector<Case> cases = {
      {{7, 7}, 1, {}, {}, ""},
      {{7, 8}, 1, {}, {0, 1}, "ranks 0, 1" + unclear},
      {{7, 8, 7}, 1, {1}, {}, "rank 1 has other weights than ranks 0, 2"},
      {{9, 8, 8}, 1, {0}, {}, "rank 0 has other weights than ranks 1, 2"},
      {{7, 8, 9}, 1, {}, {0, 1, 2}, "ranks 0, 1, 2" + unclear},
      {{7, 7, 8, 8}, 1, {}, {0, 1, 2, 3}, "ranks 0, 1, 2, 3" + unclear},
      // Two that are equal are right: chance does not make them so.
      {{7, 8, 7, 9},
       1,
       {1, 3},
       {},
       "ranks 1, 3 have other weights than ranks 0, 2"},
      {{7, 7, 7, 7, 8, 7},
       1,
       {4},
       {},
       "rank 4 has other weights than ranks 0, 1, 2, 3 and 1 more"},
      // Stages have different weights.
      {{7, 7, 9, 9}, 2, {}, {}, ""},
      {{7, 9, 5}, 3, {}, {}, ""},
      {{7, 7, 9, 8}, 2, {}, {2, 3}, "ranks 2, 3" + unclear},
      {{7, 7, 8, 9, 9, 5},
       2,
       {2, 5},
       {},
       "rank 2 has other weights than ranks 0, 1, rank 5 has other weights "
       "than ranks 3, 4"},
      {{7, none, 7}, 1, {}, {}, ""},
      {{none, none}, 1, {}, {}, ""},
  };
  for (const Case& one : cases) {
    const WeightJudgement judgement = judge_weights(one.digests, one.stages);
    EXPECT_EQ(judgement.wrong, one.wrong) << one.reason;
    EXPECT_EQ(judgement.undecided, one.undecided) << one.reason;
    EXPECT_EQ(judgement.reason, one.reason);
    EXPECT_EQ(judgement.are_equal(), one.reason.empty());
  }
}

TEST(UndecidedDifferences, AreRepeatedOnlySoonAfterTheNewest) {
  UndecidedDifferences differences;
  EXPECT_FALSE(differences.is_repeated(5, 1000));
  EXPECT_FALSE(differences.is_repeated(1006, 1000));
  EXPECT_TRUE(differences.is_repeated(2006, 1000));
  EXPECT_TRUE(differences.is_repeated(2000, 1000)) << "after going back";
}

configs::RunConfig small_config() {
  configs::RunConfig config;
  config.synthetic_input = true;
  config.image_height = config.image_width = 64;
  config.global_batch_size = 3;
  return config;
}

struct Found {
  std::vector<WeightJudgement> in_steps;
  std::string at_the_end;  // the difference after the last step
};

// Trains 7 steps on three ranks, of which rank 1 has the fault, and compares
// before every third step and at the end.
Found train(int zero_stage, const std::string& fault) {
  Found found;
  run_ranks(3, [&](int rank, collectives::Communicator& communicator) {
    plan::Plan plan;
    plan.layout.data_parallel_size = 3;
    plan.micro_batch_size = 3;
    plan.batch_norm_group_size = 3;
    plan.zero_stage = zero_stage;
    collectives::Mesh mesh(communicator, plan.layout);
    StepRank run(small_config(), plan, mesh);
    FaultInjection faults(configs::parse_faults(fault),
                          devices::ComputeDevice(), rank);
    run.options.faults = &faults;
    run.options.weight_digest_every = 3;
    for (int step = 0; step < 7; ++step) {
      const StepResult result = run.step();
      ASSERT_TRUE(result.committed);
      if (rank == 0) found.in_steps.push_back(result.weights);
    }
    try {
      require_equal_weights(run.state, mesh);
    } catch (const WeightsDiffer& difference) {
      EXPECT_EQ(difference.is_wrong(), rank == 1);
      if (rank == 0) found.at_the_end = difference.what();
    }
  });
  return found;
}

const std::string kAtTheEnd =
    "after 7 steps rank 1 has other weights than ranks 0, 2";

TEST(WeightCheck, AChangedBitIsFoundWithinTheInterval) {
  const Found found = train(/*zero_stage=*/0, "corrupt@rank=1,step=3");
  ASSERT_EQ(found.in_steps.size(), 7u);
  for (size_t step = 0; step < 6; ++step) {
    EXPECT_TRUE(found.in_steps[step].are_equal()) << step;
  }
  EXPECT_EQ(found.in_steps[6].wrong, Ranks{1});
  EXPECT_EQ(found.at_the_end, kAtTheEnd);
}

// Under ZeRO 1 and 2 an optimizer step gathers the weights anew.
TEST(WeightCheck, GatheredWeightsAreCompared) {
  for (const int zero_stage : {1, 2}) {
    SCOPED_TRACE(zero_stage);
    EXPECT_EQ(train(zero_stage, "corrupt@rank=1,step=6").at_the_end, kAtTheEnd);
  }
}

TEST(WeightCheck, UndisturbedRanksAreEqual) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero_stage);
    const Found found = train(zero_stage, "");
    EXPECT_EQ(found.at_the_end, "");
    for (const WeightJudgement& one : found.in_steps) {
      EXPECT_TRUE(one.are_equal()) << one.reason;
    }
  }
}

}  // namespace
}  // namespace headroom::step
