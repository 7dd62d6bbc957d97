// What becomes of what a layer's operators save, by the policy of the layer, as
// worker/step/apply_plan.h runs them.
//
//   keep       held
//   lean       a use of its derivation where it has one, else held
//   recompute  nothing; the layer's inputs, and the layer once more in backward
//   offload    in a file, and read anew for each use
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

class LeanPolicy final : public SavePolicy {
 public:
  Unpack pack(const Memory& memory) override;
};

class OffloadPolicy final : public SavePolicy {
 public:
  explicit OffloadPolicy(MemoryTimeline& timeline) : timeline_(timeline) {}
  Unpack pack(const Memory& memory) override;

 private:
  MemoryTimeline& timeline_;
};

using Piece = std::function<std::vector<Map>(const OpContext& context,
                                             std::vector<Map> inputs)>;

struct RecomputeOptions {
  // Inputs whose derivations cost at most this are made again too.
  Cost inputs = Cost::kElementwise;
  // The derivation that the only output gets; without one, who saves it keeps
  // it.
  std::optional<Cost> output;
};

// Runs the piece; what it saves is produced again in backward by running it
// once more.
std::vector<Map> recompute(const OpContext& context, Piece piece,
                           const std::vector<Map>& inputs,
                           const RecomputeOptions& options);

}  // namespace headroom::predict
