// RankShare: what of a run is one rank's, as far as memory goes: its layers,
// its part of the batch and of the image, and the bytes that lie there between
// steps.
//
// Ownership: borrows the request, which must outlive it. Threads: one.
#pragma once

#include <cstdint>

#include "parallel/plan/batch_split.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {

class RankShare {
 public:
  RankShare(const MemoryRequest& request, const plan::MeshCoordinates& rank);

  const MemoryRequest& request() const { return request_; }
  const plan::Plan& plan() const { return request_.plan; }
  const plan::MeshCoordinates& rank() const { return rank_; }
  const SimulatedStage& stage() const { return stage_; }
  const plan::BatchCut& cut() const { return cut_; }
  // Of the step that the request asks for.
  const plan::BatchPart& part() const { return part_; }

  int64_t samples() const;  // of the global batch
  int64_t height() const;   // of whole images
  int64_t width() const;
  int64_t largest_stride() const { return largest_stride_; }
  int64_t smallest_map_elements() const;
  // Of so many rows of whole images, those of this rank.
  int64_t own_rows(int64_t height) const;
  MicroBatchShape extents(int64_t samples, int64_t groups, int64_t height,
                          int64_t width) const;
  // Of the rank's micro-batch of that number.
  MicroBatchShape micro_batch(size_t index) const;

  // Weights, gradients, moments, averages, statistics; slices that ZeRO
  // exchanges; a place for loaded images; small things.
  MemoryEstimate resident() const;
  // What a rank that fails completes its exchanges with lies ready from its
  // first pass on: rows of maps, or sums of a layer's groups.
  int64_t exchange_bytes(const MicroBatchShape& extents) const;
  bool groups_span_ranks() const;
  // Its weights and statistics, tensor by tensor.
  int64_t teacher_bytes() const;
  // Under ZeRO: of the parameters of a layer, whole.
  int64_t largest_gathered_layer() const;

  // Of so many samples, at the bound of their labels.
  int64_t most_matches(int64_t samples) const;
  // Targets of so many matches.
  int64_t target_bytes(int64_t matches) const;

 private:
  int64_t num_groups(const plan::SampleRange& micro_batch) const;
  // On a device: of the largest micro-batch's bytes, and of those that it is
  // rendered from (worker/step/device_prefetcher.h).
  int64_t place_bytes() const;

  const MemoryRequest& request_;
  const plan::MeshCoordinates rank_;
  SimulatedStage stage_;
  plan::BatchCut cut_;
  plan::BatchPart part_;
  int64_t largest_stride_ = 1;
};

}  // namespace headroom::predict
