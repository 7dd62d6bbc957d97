#include "worker/step/step_reports.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/run_ranks.h"

namespace headroom::step {
namespace {

using Bytes = StepReports::Bytes;

TEST(StepReports, OfThreeRanks_LossesAreSummedAndBytesKeptApart) {
  run_ranks(3, [](int rank, collectives::Communicator& world) {
    StepReports reports(rank, 3);
    reports.set_items(at::tensor({1.0, 2.0, 4.0, 0.0}, at::kDouble) *
                      (rank + 1));
    reports.set_squared_norm_share(0.5);
    reports.set_bytes(Bytes::kMeasuredPeak, 1000 + rank);
    reports.set_bytes(Bytes::kLive, 100 + rank);
    reports.set_bytes(Bytes::kPredictedPeak, rank == 1 ? 0 : 2000);
    reports.all_reduce(world);

    EXPECT_EQ(reports.losses().terms[0], 6);
    EXPECT_EQ(reports.losses().terms[1], 12);
    EXPECT_EQ(reports.losses().terms[2], 24);
    EXPECT_EQ(reports.losses().sum(), 42);
    EXPECT_EQ(reports.squared_norm(), 1.5);
    EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kMeasuredPeak),
              (std::vector<int64_t>{1000, 1001, 1002}));
    EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kLive),
              (std::vector<int64_t>{100, 101, 102}));
    EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kPredictedPeak),
              (std::vector<int64_t>{2000, 0, 2000}));
  });
}

using data_parallel::Outcome;

// Returns the verdict of a vote in which each rank has one of these outcomes
// and the squared norm is `norm`.
data_parallel::Verdict verdict_of(const std::vector<Outcome>& outcomes,
                                  double norm) {
  data_parallel::Verdict verdict;
  run_ranks(static_cast<int>(outcomes.size()),
            [&](int rank, collectives::Communicator& world) {
              StepReports reports(rank, world.size());
              reports.set_squared_norm_share(rank == 0 ? norm : 0);
              reports.set_ballot({.outcome = outcomes.at(rank),
                                  .stop_requested = rank == 1,
                                  .rank = rank,
                                  .leave_requested = rank == 0});
              reports.all_reduce(world);
              const data_parallel::Verdict mine = reports.verdict();
              EXPECT_TRUE(mine.stop_requested && mine.leave_requested &&
                          !mine.save_requested);
              if (rank == 0) verdict = mine;
            });
  return verdict;
}

TEST(StepReports, EveryRankLearnsTheSameVerdict) {
  constexpr Outcome kOk = Outcome::kOk, kBad = Outcome::kNonFinite;
  const auto is = [](const data_parallel::Verdict& verdict, Outcome outcome,
                     int rank) {
    return verdict.outcome == outcome && verdict.rank == rank;
  };
  EXPECT_TRUE(is(verdict_of({kOk, kOk}, 4), kOk, -1));
  EXPECT_TRUE(is(verdict_of({kOk, kBad}, 4), kBad, 1));
}

// Devices add their losses to a copy of the reports, and the sum is read back.
TEST(StepReports, SummedOnDevices_TheyAreThoseOfTheHosts) {
  const double bad = std::numeric_limits<double>::quiet_NaN();
  for (const bool is_finite : {true, false}) {
    run_ranks(2, [&](int rank, collectives::Communicator& world) {
      StepReports reports(rank, 2, /*num_levels=*/3);
      reports.set_bytes(Bytes::kLive, 100 + rank);
      reports.set_ballot({.outcome = rank == 1 && is_finite
                                         ? Outcome::kNonFinite
                                         : Outcome::kOk,
                          .rank = rank});
      const at::Tensor copy = reports.values().clone();
      reports.set_items_in(
          copy, at::tensor(
                    {1.0 + rank, rank == 1 && !is_finite ? bad : 2.0, 4.0, 0.0},
                    at::kDouble));
      world.all_reduce(copy);
      EXPECT_EQ(StepReports::objections_in(copy).item<double>(), is_finite);
      EXPECT_EQ(StepReports::items_in(copy)[0].item<double>(), 3);
      reports.take(copy);
      EXPECT_EQ(reports.losses().terms[0], 3);
      EXPECT_EQ(reports.losses().is_finite(), is_finite);
      EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kLive),
                (std::vector<int64_t>{100, 101}));
      // Rank 1 rejects the step, or its loss is not finite.
      EXPECT_EQ(reports.verdict().outcome, Outcome::kNonFinite);
      EXPECT_EQ(reports.verdict().rank, 1);
    });
  }
}

// A gradient that is finite on each rank may become infinite in the sum.
TEST(StepReports, ANormThatIsNotFinite_MakesTheStepNonFiniteOnEveryRank) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr Outcome kOk = Outcome::kOk;
  for (const double norm : {kInfinity, kInfinity - kInfinity}) {
    const data_parallel::Verdict verdict = verdict_of({kOk, kOk}, norm);
    EXPECT_EQ(verdict.outcome, Outcome::kNonFinite);
    EXPECT_EQ(verdict.rank, 0);
  }
}

TEST(StepReports, MatchesOfTheNextStep_AreReportedOnceAllRanksKnowThem) {
  for (const bool all_know : {true, false}) {
    run_ranks(2, [&](int rank, collectives::Communicator& world) {
      StepReports reports(rank, 2, /*num_levels=*/3);
      if (rank == 0 || all_know) {
        reports.set_following_matches({1 + rank, 10, 100});
      }
      reports.all_reduce(world);
      const auto matches = reports.following_matches();
      EXPECT_EQ(matches.has_value(), all_know);
      if (all_know) {
        EXPECT_EQ(*matches, (std::vector<int64_t>{3, 20, 200}));
      }
      reports.clear();
      EXPECT_FALSE(reports.following_matches());
    });
  }
}

TEST(StepReports, ChecksAreKeptApartByRank) {
  constexpr uint64_t kDigest = 0xFEDCBA9876543210;
  run_ranks(3, [&](int rank, collectives::Communicator& world) {
    StepReports reports(rank, 3, /*num_levels=*/3);
    reports.set_following_matches({1, 1, 1});
    if (rank != 0) reports.set_seconds_per_image(0.5 * rank);
    if (rank != 1) reports.set_weight_digest(kDigest + rank);
    reports.all_reduce(world);
    EXPECT_EQ(reports.seconds_per_image(), (std::vector<double>{0, 0.5, 1}));
    EXPECT_EQ(reports.weight_digests(),
              (std::vector<std::optional<uint64_t>>{kDigest, std::nullopt,
                                                    kDigest + 2}));
    EXPECT_EQ(reports.following_matches(), (std::vector<int64_t>{3, 3, 3}));
  });
}

// Doubles represent each integer up to 2^53.
TEST(StepReports, BytesThatADoubleWouldRound_AreRefused) {
  StepReports reports(0, 1);
  const int64_t most = int64_t{1} << 53;
  reports.set_bytes(Bytes::kLive, most - 1);
  EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kLive).front(), most - 1);
  EXPECT_THROW(reports.set_bytes(Bytes::kLive, most + 1), CheckFailure);
  EXPECT_THROW(reports.set_bytes(Bytes::kLive, -1), CheckFailure);
}

TEST(StepReports, TheLossesAreDividedByTheSumOfTheDivisors_IfItIsAboveOne) {
  run_ranks(2, [](int, collectives::Communicator& world) {
    StepReports reports(world.rank(), 2);
    for (const auto& [own, divisor] : {std::pair(0.25, 1.0), {2.0, 4.0}}) {
      reports.clear();
      reports.set_items(at::tensor({1.0, 2.0, 4.0, own}, at::kDouble));
      reports.all_reduce(world);
      EXPECT_EQ(reports.losses().terms,
                (LossTerms{2 / divisor, 4 / divisor, 8 / divisor}));
    }
  });
}

TEST(StepReports, ALossThatIsNotFinite_IsSeen) {
  StepReports reports(0, 1);
  EXPECT_TRUE(reports.losses().is_finite());
  reports.set_items(at::tensor(
      {0.0, std::numeric_limits<double>::infinity(), 0.0, 0.0}, at::kDouble));
  EXPECT_FALSE(reports.losses().is_finite());
  reports.clear();
  EXPECT_TRUE(reports.losses().is_finite());
}

}  // namespace
}  // namespace headroom::step
