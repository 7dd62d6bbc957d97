#include "parallel/predict/segment_estimate.h"

#include <vector>

#include "parallel/predict/step.h"

namespace headroom::predict {
namespace {

constexpr int kSteps = 2;

std::vector<int64_t> pieces_between_steps(const MemoryRequest& request,
                                          const MemoryEstimate& bytes) {
  std::vector<int64_t> pieces = {
      bytes.parameters,    bytes.gradients,  bytes.accumulated_gradients,
      bytes.average,       bytes.statistics, bytes.targets,
      bytes.communication, bytes.workspace};
  for (int64_t i = 0; i < request.num_moments; ++i)
    pieces.push_back(bytes.moments / request.num_moments);
  return pieces;
}

}  // namespace

SegmentEstimate estimate_segments(const MemoryRequest& request,
                                  const plan::MeshCoordinates& rank,
                                  int64_t limit) {
  CachingAllocator allocator(limit);
  SegmentEstimate estimate;
  for (const int64_t piece :
       pieces_between_steps(request, estimate_rank_memory(request, rank))) {
    if (piece > 0 && !allocator.allocate(piece)) estimate.fits = false;
  }
  const StepRequest step = rank_step(request, rank);
  for (int i = 0; i < kSteps && estimate.fits; ++i)
    estimate.fits = replay_step(step, allocator);
  estimate.tensor_bytes = allocator.peak_requested_bytes();
  estimate.segment_bytes = allocator.peak_reserved_bytes();
  estimate.retries = allocator.retries();
  return estimate;
}

}  // namespace headroom::predict
