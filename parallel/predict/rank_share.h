// RankShare: one rank's share of a run: its layers, its part of the batch and
// of the image, and the bytes that it holds between steps. Holds a reference to
// the request, which must outlive it.
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
  // The rank's part of the batch of samples() samples.
  const plan::BatchPart& part() const { return part_; }

  int64_t samples() const { return samples_; }  // samples of the global batch
  // The most samples of this rank in any batch.
  int64_t most_local_samples() const;
  int64_t height() const;  // the height of whole images
  int64_t width() const;
  int64_t largest_stride() const { return largest_stride_; }
  int64_t smallest_map_elements() const;
  // How many of a whole image's `height` rows this rank has.
  int64_t own_rows(int64_t height) const;
  MicroBatchShape shape(int64_t samples, int64_t groups, int64_t height,
                        int64_t width) const;
  MicroBatchShape micro_batch(size_t index) const;

  // Bytes held between steps: weights, gradients, moments, averages,
  // statistics, slices that ZeRO exchanges, a buffer for loaded images, and
  // small values.
  MemoryEstimate resident() const;
  int64_t teacher_bytes() const;
  // Bytes of the parameters of the rank's layers in flat buffers: all of them
  // (under ZeRO padded to equal slices), this rank's shard, and this rank's
  // slice of the largest layer.
  int64_t whole_bytes() const;
  int64_t shard_bytes() const;
  int64_t largest_slice() const;
  // Channels of the batch norms of the rank's layers, and of all layers.
  int64_t norm_channels() const;
  int64_t norm_channels_of_model() const;

  // The most matches of `samples` samples.
  int64_t most_matches(int64_t samples) const;
  int64_t target_bytes(int64_t matches) const;

 private:
  plan::BatchPart part_with(int64_t samples) const;
  // The number of samples of the requested step. If no step is requested, the
  // number of a full batch, or of an epoch's last batch if the groups of that
  // batch need more samples in flight.
  int64_t largest_batch() const;
  int64_t num_groups(const plan::SampleRange& micro_batch) const;
  // Bytes on a device for the largest loaded micro-batch, and for rendering its
  // samples (worker/step/device_prefetcher.h).
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
