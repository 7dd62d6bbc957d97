#include "configs/layers/layer_widths.h"

#include <cmath>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::layers {
namespace {

// The place of the widths among a layer's arguments.
constexpr size_t kPlace = 2;
constexpr double kMostChannels = 16384;

[[noreturn]] void fail(const ModelTable::Layer& layer, const std::string& what,
                       const std::string& remedy) {
  throw Error("model", yaml::to_string(layer.place) + ": " + what, remedy);
}

int64_t width_of(const ModelTable::Layer& layer, double written) {
  if (!(written >= 1 && written <= kMostChannels) ||
      written != std::floor(written)) {
    fail(layer,
         "a width inside " + layer.module +
             " is no whole number from 1 to 16384",
         "correct it");
  }
  return static_cast<int64_t>(written);
}

}  // namespace

std::vector<int64_t> c3_widths(const ModelTable::Layer& layer, int64_t channels,
                               int64_t repeats, bool shortcut) {
  const auto count = static_cast<size_t>(2 + 2 * repeats);
  if (layer.args.size() <= kPlace) {
    return std::vector<int64_t>(count, channels / 2);
  }
  const auto* written = std::get_if<std::vector<double>>(&layer.args[kPlace]);
  if (written == nullptr || written->size() != count) {
    fail(layer,
         "argument 3 of C3 " +
             (written == nullptr
                  ? std::string("is no list")
                  : "lists " + std::to_string(written->size()) + " widths") +
             ", and with " + std::to_string(repeats) +
             " bottlenecks there are " + std::to_string(count),
         "write [cv1, cv2, m.0.cv1, m.0.cv2, ...], or leave it out");
  }
  std::vector<int64_t> widths;
  for (const double width : *written) widths.push_back(width_of(layer, width));
  for (size_t i = 3; shortcut && i < count; i += 2) {
    if (widths[i] == widths[0]) continue;
    fail(layer,
         "a bottleneck of C3 gives " + std::to_string(widths[i]) +
             " channels, to be added to " + std::to_string(widths[0]),
         "write the same width for cv1 and every second one of a bottleneck, "
         "or False for the shortcut");
  }
  return widths;
}

int64_t sppf_width(const ModelTable::Layer& layer, int64_t input_channels) {
  if (layer.args.size() <= kPlace) return input_channels / 2;
  const auto* written = std::get_if<double>(&layer.args[kPlace]);
  if (written == nullptr) {
    fail(layer, "argument 3 of SPPF is no number",
         "write the channels of cv1, or leave it out");
  }
  return width_of(layer, *written);
}

bool can_write_widths(const std::string& module, size_t num_convolutions) {
  return num_convolutions <= 1 || module == "C3" || module == "SPPF";
}

void write_widths(ModelTable::Layer& layer, std::vector<double> widths) {
  layer.args[0] = widths.back();
  widths.pop_back();
  if (widths.empty()) return;
  const bool is_c3 = layer.module == "C3";
  if (layer.args.size() < kPlace) {
    if (is_c3) {
      layer.args.emplace_back("True");
    } else {
      layer.args.emplace_back(5.0);
    }
  }
  layer.args.resize(kPlace);
  if (!is_c3) {
    layer.args.emplace_back(widths.front());
    return;
  }
  layer.repeats = static_cast<int>(widths.size() / 2) - 1;
  layer.args.emplace_back(std::move(widths));
}

}  // namespace headroom::layers
