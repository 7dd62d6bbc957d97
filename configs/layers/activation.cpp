#include "configs/layers/activation.h"

#include "configs/yaml/scalar.h"

namespace headroom::layers {
namespace {

constexpr double kDefaultSlope = 0.01;  // PyTorch's default
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
  for (const NamedActivation& known : kNamedActivations) {
    if (name == known.name) return known.function;
  }
  return std::nullopt;
}

std::string activation_text(const ActivationFunction& activation) {
  for (const NamedActivation& known : kNamedActivations) {
    if (activation.kind != ActivationKind::kLeaky &&
        activation.kind == known.function.kind) {
      return "nn." + std::string(known.name) + "()";
    }
  }
  return "nn." + std::string(kLeaky) + "(" +
         yaml::exact_text(activation.slope) + ")";
}

std::string known_activations() {
  std::string text;
  for (const NamedActivation& known : kNamedActivations) {
    text += "nn." + std::string(known.name) + "(), ";
  }
  return text + "nn." + std::string(kLeaky) + "(0.1)";
}

}  // namespace headroom::layers
