// StepPrediction: the bytes that this rank needs for a step, predicted from
// the step's own shapes before it runs, and a warning where it needed more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "parallel/collectives/mesh.h"
#include "parallel/predict/memory_model.h"
#include "worker/data/loader/batch.h"
#include "worker/memory/memory_comparison.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// The batch as the memory model takes it. Matches are counted on the ranks that
// compute the loss.
predict::StepShape step_shape(const loader::Batch& batch,
                              const collectives::Mesh& mesh,
                              const model::LayerGraph& model);

class StepPrediction {
 public:
  // `request`: the run's (parallel/predict/memory_request.h).
  StepPrediction(predict::MemoryRequest request, const collectives::Mesh& mesh,
                 const model::LayerGraph& model);

  // Call it before a step.
  void begin_step();

  // The step's peak bytes under `policies`, one per layer, with the batch's own
  // micro-batches.
  int64_t predict(const loader::Batch& batch,
                  std::vector<plan::ActivationPolicy> policies);

  // Whether the workspaces of all convolutions had been observed before that
  // step, on a device. Otherwise nothing was predicted.
  bool knew_workspaces() const;

  // A warning if the step needed more than the newest predict(), once for each
  // item that exceeded its prediction.
  std::optional<memory::StepEvent> compare(
      int64_t measured, const activations::CategoryBytes& peaks);

 private:
  predict::MemoryRequest request_;
  const collectives::Mesh& mesh_;
  const model::LayerGraph& model_;
  predict::MemoryEstimate estimate_;
  size_t num_shapes_ = 0;  // convolutions whose workspaces were known
  std::set<std::string> blamed_;
};

}  // namespace headroom::step
