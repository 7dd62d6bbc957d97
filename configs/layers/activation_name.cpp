#include "configs/layers/activation_name.h"

#include "configs/yaml/scalar.h"

namespace headroom::layers {
namespace {

constexpr double kDefaultSlope = 0.01;  // PyTorch's

struct Name {
  std::string_view word;
  ActivationFunction function;
};
constexpr Name kNames[] = {
    {"SiLU", {}},
    {"ReLU", kRelu},
    {"Hardswish", {ActivationKind::kHardswish}},
    {"Mish", {ActivationKind::kMish}},
    {"Identity", kIdentity},
};
constexpr std::string_view kLeaky = "LeakyReLU";

}  // namespace

std::optional<ActivationFunction> parse_activation(std::string_view name) {
  if (name.starts_with("nn.")) name.remove_prefix(3);
  std::string_view argument;
  if (name.ends_with(')')) {
    const size_t open = name.find('(');
    if (open == std::string_view::npos) return std::nullopt;
    argument = name.substr(open + 1, name.size() - open - 2);
    name = name.substr(0, open);
  }
  if (name == kLeaky) {
    if (argument.empty()) {
      return ActivationFunction{ActivationKind::kLeaky, kDefaultSlope};
    }
    const auto slope = yaml::parse_double(std::string(argument));
    if (!slope || !(*slope >= 0 && *slope <= 1)) return std::nullopt;
    return ActivationFunction{ActivationKind::kLeaky, *slope};
  }
  if (!argument.empty()) return std::nullopt;
  for (const Name& known : kNames) {
    if (name == known.word) return known.function;
  }
  return std::nullopt;
}

std::string known_activations() {
  std::string text;
  for (const Name& known : kNames) {
    text += "nn." + std::string(known.word) + "(), ";
  }
  return text + "nn." + std::string(kLeaky) + "(0.1)";
}

}  // namespace headroom::layers
