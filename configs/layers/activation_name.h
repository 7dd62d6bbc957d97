// An activation function by the name that a model file gives it, as PyTorch
// writes it: "nn.LeakyReLU(0.1)"; "nn." and empty parentheses may be missing.
//
// Threads: a pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "configs/layers/activation_function.h"

namespace headroom::layers {

// Nothing for another name, or an argument that it does not take.
std::optional<ActivationFunction> parse_activation(std::string_view name);

// For a refusal: "nn.SiLU(), nn.ReLU(), ...".
std::string known_activations();

}  // namespace headroom::layers
