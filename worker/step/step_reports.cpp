#include "worker/step/step_reports.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/plan/exchange_sizes.h"

namespace headroom::step {
namespace {

// Indices into the tensor. After the sums, the tensor has the items by rank,
// the bytes by kind and rank, the ballots by rank, the number of ranks that
// counted the next step's matches, the matches, and the checks by rank.
constexpr int64_t kFirstItem = 0;
constexpr int64_t kSquaredNorm = kernels::kStepItems;
constexpr int64_t kObjections = kSquaredNorm + 1;
constexpr int64_t kFirstItems = kObjections + 1;
static_assert(kFirstItems == plan::kReportsOfStep);
constexpr int64_t kNumByteKinds = 3;

constexpr int64_t kBallotFields = data_parallel::EncodedBallot().size();
// A rank's checks: seconds, 1 if there is a digest, and the digest's halves.
constexpr int64_t kNumChecks = 4;
static_assert(kernels::kStepItems + kNumByteKinds + kBallotFields +
                  kNumChecks ==
              plan::kReportsOfRank);

constexpr int64_t kMostBytes = int64_t{1} << 53;

}  // namespace

double StepReports::Losses::sum() const {
  double sum = 0;
  for (const double term : terms) sum += term;
  return sum;
}

bool StepReports::Losses::is_finite() const {
  return std::ranges::all_of(terms,
                             [](double term) { return std::isfinite(term); });
}

StepReports::StepReports(int rank, int num_ranks, int64_t num_levels)
    : rank_(rank),
      num_ranks_(num_ranks),
      num_levels_(num_levels),
      values_(
          at::zeros({plan::num_reports(num_ranks, num_levels)}, at::kDouble)) {
  HEADROOM_CHECK(0 <= rank && rank < num_ranks, std::to_string(rank));
}

void StepReports::clear() { values_.zero_(); }

void StepReports::set_items(const at::Tensor& items) {
  set_items_in(values_, items.cpu());
}

void StepReports::set_items(
    std::span<const double, kernels::kStepItems> items) {
  for (const int64_t begin : {kFirstItem, begin_of_items(rank_)}) {
    std::ranges::copy(items, values_.data_ptr<double>() + begin);
  }
}

void StepReports::set_items_in(const at::Tensor& copy,
                               const at::Tensor& items) const {
  for (const int64_t begin : {kFirstItem, begin_of_items(rank_)}) {
    copy.narrow(0, begin, kernels::kStepItems).copy_(items);
  }
}

at::Tensor StepReports::items_in(const at::Tensor& copy) {
  return copy.narrow(0, kFirstItem, kernels::kStepItems);
}

at::Tensor StepReports::objections_in(const at::Tensor& copy) {
  return copy.narrow(0, kObjections, 1);
}

void StepReports::set_squared_norm_share(double share) {
  values_.data_ptr<double>()[kSquaredNorm] = share;
}

void StepReports::set_bytes(Bytes which, int64_t bytes) {
  HEADROOM_CHECK(0 <= bytes && bytes <= kMostBytes,
                 cat(bytes, " bytes in a step's report"));
  values_.data_ptr<double>()[begin_of(which) + rank_] =
      static_cast<double>(bytes);
}

void StepReports::set_ballot(const data_parallel::Ballot& ballot) {
  values_.data_ptr<double>()[kObjections] =
      ballot.outcome == data_parallel::Outcome::kOk ? 0 : 1;
  const data_parallel::EncodedBallot encoded = data_parallel::encode(ballot);
  std::ranges::copy(encoded, values_.data_ptr<double>() + begin_of_ballots() +
                                 rank_ * kBallotFields);
}

void StepReports::set_following_matches(const std::vector<int64_t>& matches) {
  HEADROOM_CHECK(static_cast<int64_t>(matches.size()) == num_levels_,
                 cat(matches.size(), " levels of matches, not ", num_levels_));
  double* const to = values_.data_ptr<double>() + begin_of_matches();
  to[0] = 1;
  std::ranges::copy(matches, to + 1);
}

void StepReports::set_seconds_per_image(double seconds) {
  values_.data_ptr<double>()[begin_of_checks(rank_)] = seconds;
}

void StepReports::set_weight_digest(uint64_t digest) {
  double* const to = values_.data_ptr<double>() + begin_of_checks(rank_);
  to[1] = 1;
  to[2] = static_cast<double>(digest >> 32);
  to[3] = static_cast<double>(digest & 0xFFFFFFFF);
}

void StepReports::all_reduce(collectives::Communicator& communicator) {
  communicator.all_reduce(values_);
}

StepReports::Losses StepReports::losses() const {
  const double* items = values_.const_data_ptr<double>() + kFirstItem;
  Losses losses;
  for (size_t i = 0; i < losses.terms.size(); ++i) {
    losses.terms[i] = items[i] / kernels::divisor_of(items);
  }
  return losses;
}

double StepReports::squared_norm() const {
  return values_.const_data_ptr<double>()[kSquaredNorm];
}

std::vector<int64_t> StepReports::bytes_of_all_ranks(Bytes which) const {
  const double* first = values_.const_data_ptr<double>() + begin_of(which);
  return {first, first + num_ranks_};
}

data_parallel::Verdict StepReports::verdict() const {
  const double* const ballots =
      values_.const_data_ptr<double>() + begin_of_ballots();
  data_parallel::EncodedBallot maxima = {};
  const auto count = [&maxima](const data_parallel::EncodedBallot& ballot) {
    for (size_t i = 0; i < maxima.size(); ++i) {
      maxima[i] = std::max(maxima[i], ballot[i]);
    }
  };
  for (int rank = 0; rank < num_ranks_; ++rank) {
    data_parallel::EncodedBallot ballot = {};
    for (int64_t i = 0; i < kBallotFields; ++i) {
      ballot[static_cast<size_t>(i)] =
          static_cast<int64_t>(ballots[rank * kBallotFields + i]);
    }
    count(ballot);
    const double* const items =
        values_.const_data_ptr<double>() + begin_of_items(rank);
    const bool is_finite =
        std::isfinite(squared_norm()) &&
        std::all_of(items, items + kernels::kStepItems,
                    [](double item) { return std::isfinite(item); });
    if (data_parallel::decode(ballot).ok() && !is_finite) {
      count(data_parallel::encode(
          {.outcome = data_parallel::Outcome::kNonFinite, .rank = rank}));
    }
  }
  return data_parallel::decode(maxima);
}

std::optional<std::vector<int64_t>> StepReports::following_matches() const {
  const double* const first =
      values_.const_data_ptr<double>() + begin_of_matches();
  if (num_levels_ == 0 || first[0] != num_ranks_) return std::nullopt;
  return std::vector<int64_t>(first + 1, first + 1 + num_levels_);
}

int64_t StepReports::begin_of_items(int rank) const {
  return kFirstItems + kernels::kStepItems * rank;
}

std::vector<double> StepReports::seconds_per_image() const {
  std::vector<double> seconds;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    seconds.push_back(values_.const_data_ptr<double>()[begin_of_checks(rank)]);
  }
  return seconds;
}

std::vector<std::optional<uint64_t>> StepReports::weight_digests() const {
  std::vector<std::optional<uint64_t>> digests(static_cast<size_t>(num_ranks_));
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const double* const from =
        values_.const_data_ptr<double>() + begin_of_checks(rank);
    if (from[1] == 0) continue;
    digests[static_cast<size_t>(rank)] =
        static_cast<uint64_t>(from[2]) << 32 | static_cast<uint64_t>(from[3]);
  }
  return digests;
}

int64_t StepReports::begin_of_ballots() const {
  return begin_of_items(num_ranks_) + kNumByteKinds * num_ranks_;
}

int64_t StepReports::begin_of_matches() const {
  return begin_of_ballots() + kBallotFields * num_ranks_;
}

int64_t StepReports::begin_of_checks(int rank) const {
  return begin_of_matches() + 1 + num_levels_ + kNumChecks * rank;
}

int64_t StepReports::begin_of(Bytes which) const {
  return begin_of_items(num_ranks_) + static_cast<int64_t>(which) * num_ranks_;
}

}  // namespace headroom::step
