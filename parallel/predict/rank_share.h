// RankShare: what of a run is one rank's, as far as memory goes: its layers,
// its part of the batch and of the image, and the bytes that it holds between
// steps. Borrows the request, which must outlive it.
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
  // The rank's part of the step that the request asks for.
  const plan::BatchPart& part() const { return part_; }

  int64_t samples() const { return samples_; }  // the global batch's
  // The most of the rank in a batch.
  int64_t most_local_samples() const;
  int64_t height() const;  // the height of whole images
  int64_t width() const;
  int64_t largest_stride() const { return largest_stride_; }
  int64_t smallest_map_elements() const;
  // How many of `height` rows of whole images this rank has.
  int64_t own_rows(int64_t height) const;
  MicroBatchShape shape(int64_t samples, int64_t groups, int64_t height,
                        int64_t width) const;
  MicroBatchShape micro_batch(size_t index) const;

  // What lies there between steps: weights, gradients, moments, averages,
  // statistics; slices that ZeRO exchanges; a buffer for loaded images; small
  // things.
  MemoryEstimate resident() const;
  bool groups_span_ranks() const;
  // The teacher's weights and statistics, tensor by tensor.
  int64_t teacher_bytes() const;
  // Bytes of the largest layer's parameters, whole, under ZeRO.
  int64_t largest_gathered_layer() const;

  // Matches of `samples` samples, at the bound of their labels.
  int64_t most_matches(int64_t samples) const;
  // Bytes of the targets of so many matches.
  int64_t target_bytes(int64_t matches) const;

 private:
  plan::BatchPart part_with(int64_t samples) const;
  // The batch of the step that the request asks for; else a full batch, or an
  // epoch's last one where its even groups need more at once.
  int64_t largest_batch() const;
  int64_t num_groups(const plan::SampleRange& micro_batch) const;
  // Bytes on a device for the largest micro-batch as it was loaded, and for
  // what it is rendered from (worker/step/device_prefetcher.h).
  int64_t place_bytes() const;

  const MemoryRequest& request_;
  const plan::MeshCoordinates rank_;
  SimulatedStage stage_;
  plan::BatchCut cut_;
  plan::BatchPart part_;
  int64_t largest_stride_ = 1;
  int64_t samples_ = 0;
};

}  // namespace headroom::predict
