#include "worker/step/step_reports.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>

#include "parallel/base/check.h"

namespace headroom::step {
namespace {

// Places of the numbers in the tensor; bytes follow, kind by kind.
constexpr int64_t kBox = 0, kObj = 1, kCls = 2;
constexpr int64_t kNumLosses = 3;
constexpr int64_t kSquaredNorm = 3;
constexpr int64_t kFirstBytes = 4;
constexpr int64_t kNumByteKinds = 3;

constexpr int64_t kMostBytes = int64_t{1} << 53;

}  // namespace

bool StepReports::Losses::is_finite() const {
  return std::isfinite(box) && std::isfinite(obj) && std::isfinite(cls);
}

StepReports::StepReports(int rank, int num_ranks)
    : rank_(rank),
      num_ranks_(num_ranks),
      values_(
          at::zeros({kFirstBytes + kNumByteKinds * num_ranks}, at::kDouble)) {
  HEADROOM_CHECK(0 <= rank && rank < num_ranks, std::to_string(rank));
}

void StepReports::clear() { values_.zero_(); }

void StepReports::set_losses(const at::Tensor& items) {
  values_.narrow(0, kBox, kNumLosses).copy_(items);
}

void StepReports::set_squared_norm_share(double share) {
  values_.data_ptr<double>()[kSquaredNorm] = share;
}

void StepReports::set_bytes(Bytes which, int64_t bytes) {
  HEADROOM_CHECK(0 <= bytes && bytes <= kMostBytes,
                 std::to_string(bytes) + " bytes in a step's report");
  values_.data_ptr<double>()[begin_of(which) + rank_] =
      static_cast<double>(bytes);
}

void StepReports::all_reduce(collectives::Communicator& communicator) {
  communicator.all_reduce(values_);
}

StepReports::Losses StepReports::losses() const {
  const double* values = values_.const_data_ptr<double>();
  return {values[kBox], values[kObj], values[kCls]};
}

double StepReports::squared_norm() const {
  return values_.const_data_ptr<double>()[kSquaredNorm];
}

std::vector<int64_t> StepReports::bytes_of_all_ranks(Bytes which) const {
  const double* first = values_.const_data_ptr<double>() + begin_of(which);
  return {first, first + num_ranks_};
}

int64_t StepReports::begin_of(Bytes which) const {
  return kFirstBytes + static_cast<int64_t>(which) * num_ranks_;
}

}  // namespace headroom::step
