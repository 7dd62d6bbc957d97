// The operators of each activation in the exported languages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/layers/activation.h"

namespace headroom::exporter {

struct ExportedActivation {
  std::string torch;  // TorchScript's function; "" for the identity
  // ONNX's operators, each applied to the result of the one before.
  std::vector<std::string> onnx;
  bool is_gate = false;  // the input is multiplied by the operators' result
  std::optional<double> slope;  // argument of the operator in both languages
};

inline ExportedActivation exported_activation(
    const layers::ActivationFunction& function) {
  switch (function.kind) {
    case layers::ActivationKind::kSilu:
      break;
    case layers::ActivationKind::kLeaky:
      if (function == layers::kIdentity) return {};
      if (function == layers::kRelu) return {"torch.relu", {"Relu"}, false, {}};
      return {"torch.leaky_relu", {"LeakyRelu"}, false, function.slope};
    case layers::ActivationKind::kHardswish:
      return {"torch.hardswish", {"HardSwish"}, false, {}};
    case layers::ActivationKind::kMish:
      return {"torch.mish", {"Softplus", "Tanh"}, true, {}};
  }
  return {"torch.silu", {"Sigmoid"}, true, {}};
}

}  // namespace headroom::exporter
