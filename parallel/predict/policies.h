// How a layer's saved buffers are kept under each activation policy, as in
// worker/step/apply_plan.h.
//
//   keep       the buffer is held
//   lean       the derivation is kept if there is one, else the buffer is held
//   recompute  only the layer's inputs are held; the layer runs again in
//              backward
//   offload    the buffer is written to a file, and read again for each use
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

class SimulatedLean final : public SavePolicy {
 public:
  Unpack pack(const Memory& memory) override;
};

class SimulatedOffload final : public SavePolicy {
 public:
  explicit SimulatedOffload(LiveBuffers& buffers) : buffers_(buffers) {}
  Unpack pack(const Memory& memory) override;

 private:
  LiveBuffers& buffers_;
};

using Piece = std::function<std::vector<Map>(const OpContext& context,
                                             std::vector<Map> inputs)>;

struct RecomputeOptions {
  // Inputs with derivations of at most this cost are also recomputed, not held.
  Cost inputs = Cost::kElementwise;
  // The cost of recomputing the only output. If empty, the output is not
  // recomputed: layers that need it for backward keep its buffer.
  std::optional<Cost> output;
};

// Runs the piece without saving; backward runs it again to get the saved
// buffers.
std::vector<Map> recompute(const OpContext& context, Piece piece,
                           const std::vector<Map>& inputs,
                           const RecomputeOptions& options);

}  // namespace headroom::predict
