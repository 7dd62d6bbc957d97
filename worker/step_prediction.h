// StepPrediction: the bytes that this rank needs for a step, predicted from
// the step's own shapes before it runs, and a warning where it needed more.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "parallel/plan/memory_model.h"
#include "worker/memory_comparison.h"
#include "worker/step_shape.h"

namespace headroom {

class StepPrediction {
 public:
  // `request`: the run's (configs/memory/memory_request.h).
  StepPrediction(MemoryRequest request, const Mesh& mesh,
                 const LayerGraph& model);

  // In bytes. `policies`: one per row, those the step runs under; the
  // micro-batches are the batch's own.
  int64_t predict(const Batch& batch, std::vector<ActivationPolicy> policies);

  // After that step, on a device: whether the workspaces of all its
  // convolutions had been observed before; else what was predicted is not all.
  bool knew_workspaces() const;

  // After a step: a warning where it needed more than predict() said last, the
  // first time that an item is to blame.
  std::optional<StepEvent> compare(int64_t measured,
                                   const CategoryBytes& peaks);

 private:
  MemoryRequest request_;
  const Mesh& mesh_;
  const LayerGraph& model_;
  MemoryEstimate estimate_;
  size_t num_shapes_ = 0;  // of convolutions that were known
  std::set<std::string> blamed_;
};

}  // namespace headroom
