// A small graph of plain tensor operations, whole or as a stage of a pipeline.
//
//   map of layer r = tanh(weight_r * sum)
//   sum            = (k + 1) * input_k, summed over the layer's inputs k
//
// with one weight per channel. The loss is a weighted sum of the last layer's
// map. Everything is in float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "parallel/pipeline/executor.h"
#include "tests/parallel/pipeline/random_pipeline.h"

namespace headroom::pipeline {

// Micro-batches have different numbers of samples; some may have none.
struct ToyBatch {
  std::vector<at::Tensor> images;  // [N, 3, 4, 5]
};
ToyBatch toy_batch(uint32_t seed, int64_t num_micro_batches,
                   bool with_empty_ones);

// The weights of all layers; the same seed gives the same weights.
std::vector<at::Tensor> toy_weights(uint32_t seed, size_t num_layers);

// The gradients of all weights, computed with one graph and summed over the
// micro-batches.
std::vector<at::Tensor> undivided_gradients(const RandomPipeline& pipeline,
                                            const ToyBatch& batch,
                                            std::vector<at::Tensor> weights);

// One stage. It counts the micro-batches in flight by the tensors that autograd
// has saved for them.
class ToyStage : public StageWork {
 public:
  ToyStage(const RandomPipeline& pipeline, int stage, const ToyBatch& batch,
           std::vector<at::Tensor> weights);

  std::vector<at::Tensor> forward(int64_t micro_batch,
                                  std::vector<at::Tensor> received) override;
  std::vector<int64_t> map_sizes(int64_t micro_batch, int layer) override;
  void before_backward(int64_t micro_batch, bool is_last) override;

  int64_t num_alive();  // micro-batches with tensors that autograd holds
  int64_t most_alive = 0;
  std::vector<bool> last_flags;  // the flags of before_backward
  const std::vector<at::Tensor>& weights() const { return weights_; }
  const StageRoutes& routes() const { return routes_; }
  int begin() const { return begin_; }
  int end() const { return end_; }

 private:
  const RandomPipeline& pipeline_;
  const ToyBatch& batch_;
  std::vector<at::Tensor> weights_;
  StageRoutes routes_;
  int begin_ = 0, end_ = 0;
  std::map<int64_t, c10::weak_intrusive_ptr<c10::StorageImpl>> saved_;
};

}  // namespace headroom::pipeline
