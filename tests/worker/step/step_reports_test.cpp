#include "worker/step/step_reports.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>

#include "parallel/base/check.h"
#include "tests/support/run_ranks.h"

namespace headroom::step {
namespace {

using Bytes = StepReports::Bytes;

TEST(StepReports, OfThreeRanks_LossesAreSummedAndBytesKeptApart) {
  run_ranks(3, [](int rank, collectives::Communicator& world) {
    StepReports reports(rank, 3);
    reports.set_losses(at::tensor({1.0, 2.0, 4.0}, at::kDouble) * (rank + 1));
    reports.set_squared_norm_share(0.5);
    reports.set_bytes(Bytes::kMeasuredPeak, 1000 + rank);
    reports.set_bytes(Bytes::kLive, 100 + rank);
    reports.set_bytes(Bytes::kPredictedPeak, rank == 1 ? 0 : 2000);
    reports.all_reduce(world);

    EXPECT_EQ(reports.losses().box, 6);
    EXPECT_EQ(reports.losses().obj, 12);
    EXPECT_EQ(reports.losses().cls, 24);
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

// Doubles hold each whole number up to 2^53.
TEST(StepReports, BytesThatADoubleWouldRound_AreRefused) {
  StepReports reports(0, 1);
  const int64_t most = int64_t{1} << 53;
  reports.set_bytes(Bytes::kLive, most - 1);
  EXPECT_EQ(reports.bytes_of_all_ranks(Bytes::kLive).front(), most - 1);
  EXPECT_THROW(reports.set_bytes(Bytes::kLive, most + 1), CheckFailure);
  EXPECT_THROW(reports.set_bytes(Bytes::kLive, -1), CheckFailure);
}

TEST(StepReports, ALossThatIsNotFinite_IsSeen) {
  StepReports reports(0, 1);
  EXPECT_TRUE(reports.losses().is_finite());
  reports.set_losses(at::tensor(
      {0.0, std::numeric_limits<double>::infinity(), 0.0}, at::kDouble));
  EXPECT_FALSE(reports.losses().is_finite());
  reports.clear();
  EXPECT_TRUE(reports.losses().is_finite());
}

}  // namespace
}  // namespace headroom::step
