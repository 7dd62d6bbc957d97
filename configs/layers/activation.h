// ActivationFunction: the activation after batch norm in a convolution block.
//
// A new activation is a kind and a name here, its value and derivative in
// worker/kernels/element_math.h and, with vectors, in
// worker/kernels/cpu/vector_kernels.cpp, and its exported form in
// worker/export/exported_activation.h; for int8, onnx_runner.cpp there must
// know its ONNX operators. nvcc compiles this header too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headroom::layers {

// ReLU, LeakyReLU and the identity are one kind: z if positive, else slope * z.
enum class ActivationKind { kSilu, kLeaky, kHardswish, kMish };

struct ActivationFunction {
  ActivationKind kind = ActivationKind::kSilu;
  double slope = 0;  // of kLeaky: 0 for ReLU, 1 for the identity

  bool operator==(const ActivationFunction&) const = default;
};

inline constexpr ActivationFunction kIdentity = {ActivationKind::kLeaky, 1};
inline constexpr ActivationFunction kRelu = {ActivationKind::kLeaky, 0};

// Names of activations in PyTorch. LeakyReLU, which has an argument, is not
// listed.
struct NamedActivation {
  std::string_view name;
  ActivationFunction function;
};
inline constexpr NamedActivation kNamedActivations[] = {
    {"SiLU", {}},
    {"ReLU", kRelu},
    {"Hardswish", {ActivationKind::kHardswish}},
    {"Mish", {ActivationKind::kMish}},
    {"Identity", kIdentity},
};

// Parses an activation's name in a model file, in PyTorch's form:
// "nn.LeakyReLU(0.1)"; "nn." and empty parentheses may be missing. Returns
// nullopt for an unknown name or a wrong argument.
std::optional<ActivationFunction> parse_activation(std::string_view name);

// The activation's name in a model file.
std::string activation_text(const ActivationFunction& activation);

// A list for error messages: "nn.SiLU(), nn.ReLU(), ...".
std::string known_activations();

}  // namespace headroom::layers
