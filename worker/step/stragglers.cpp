#include "worker/step/stragglers.h"

#include "parallel/base/median.h"
#include "parallel/base/text.h"

namespace headroom::step {

Stragglers::Stragglers(const plan::ParallelLayout& layout, int rank)
    : rank_(rank) {
  const plan::MeshCoordinates here = plan::coordinates_of(layout, rank);
  for (int other = 0; other < layout.world_size(); ++other) {
    const plan::MeshCoordinates there = plan::coordinates_of(layout, other);
    if (other != rank && there.pipeline_stage == here.pipeline_stage &&
        there.spatial_rank == here.spatial_rank) {
      peers_.push_back(static_cast<size_t>(other));
    }
  }
}

std::optional<Stragglers::News> Stragglers::note(
    const std::vector<double>& seconds) {
  constexpr double kMilliseconds = 1000;
  const double own = seconds[static_cast<size_t>(rank_)];
  std::vector<double> others;
  for (const size_t peer : peers_) {
    if (seconds[peer] > 0) others.push_back(seconds[peer]);
  }
  if (own <= 0 || others.empty()) return std::nullopt;
  const double usual = median(others);
  if (factors_.size() == kReports) factors_.erase(factors_.begin());
  factors_.push_back(own / usual);
  if (factors_.size() < kReports) return std::nullopt;
  const double factor = median(factors_);
  if (is_slow_ ? factor >= kSwift : factor <= kSlow) return std::nullopt;
  factors_.clear();
  is_slow_ = !is_slow_;
  return News{
      is_slow_,
      cat(is_slow_ ? "is slow" : "is slow no longer", ": its passes take ",
          significant_text(factor, 3), " times as long as its peers' (now ",
          significant_text(kMilliseconds * own, 3), " and ",
          significant_text(kMilliseconds * usual, 3), " ms an image)")};
}

}  // namespace headroom::step
