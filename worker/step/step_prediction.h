// StepPrediction: predicts from a step's own shapes, before it runs, the bytes
// that this rank needs for it, and warns if the step needed more.
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

// The batch's shape for the memory model. Only ranks that compute the loss
// count matches.
predict::StepShape step_shape(const loader::Batch& batch,
                              const collectives::Mesh& mesh,
                              const model::LayerGraph& model);

class StepPrediction {
 public:
  StepPrediction(predict::MemoryRequest request, const collectives::Mesh& mesh,
                 const model::LayerGraph& model);

  void begin_step();

  // The step's peak bytes under `policies`, one per layer, with the batch's own
  // micro-batches.
  int64_t predict(const loader::Batch& batch,
                  std::vector<plan::ActivationPolicy> policies);

  // Whether the workspaces of all convolutions were known before the step, on a
  // device. If not, the step's memory is not compared with its prediction.
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
