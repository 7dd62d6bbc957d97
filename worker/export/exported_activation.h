// The operators of each activation in the exported languages.
#pragma once

#include <string>

#include "configs/layers/activation.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/export/network_walk.h"

namespace headroom::exporter {

// Adds the activation of `x`; returns its value.
inline std::string exported_activation(
    NetworkEmitter& emitter, const std::string& x,
    const layers::ActivationFunction& function) {
  switch (function.kind) {
    case layers::ActivationKind::kSilu: {
      // SiLU is within 0.003 of 0 below -8.
      const std::string gate =
          emitter.add({.onnx = "Sigmoid", .inputs = {x}, .zero_below = -8});
      return emitter.add({"Mul", {x, gate}, {}, "torch.silu(" + x + ")"});
    }
    case layers::ActivationKind::kLeaky:
      if (function == layers::kIdentity) return x;
      if (function == layers::kRelu) {
        return emitter.add({"Relu", {x}, {}, "torch.relu(" + x + ")", 0});
      }
      return emitter.add({"LeakyRelu",
                          {x},
                          {{"alpha", static_cast<float>(function.slope)}},
                          "torch.leaky_relu(" + x + ", " +
                              significant_text(function.slope, 17) + ")"});
    case layers::ActivationKind::kHardswish:
      return emitter.add(
          {"HardSwish", {x}, {}, "torch.hardswish(" + x + ")", -3});
    case layers::ActivationKind::kMish: {
      const std::string gate =
          emitter.add({"Tanh", {emitter.add({"Softplus", {x}})}});
      return emitter.add({"Mul", {x, gate}, {}, "torch.mish(" + x + ")"});
    }
  }
  HEADROOM_CHECK(false, "an activation of no kind");
}

}  // namespace headroom::exporter
