#include "deploy/cli/precision_choice.h"

#include <algorithm>

#include "configs/knobs.h"
#include "parallel/base/device_list.h"

namespace headroom::cli {
namespace {

using configs::Precision;

// The first capability with bfloat16; older cards compute it in float32, slower
// than float32 itself.
constexpr int kFirstWithBf16 = 80;

}  // namespace

PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const int> capabilities) {
  if (config.command != "train") {
    return {Precision::kFp32, "weights are judged in it"};
  }
  if (config.tf32) return {Precision::kFp32, "--tf32 is about it"};
  if (parse_device_list(config.device).empty()) {
    return {Precision::kFp32, "the CPU computes in it"};
  }
  const auto least = std::ranges::min_element(capabilities);
  if (least == capabilities.end() || *least == 0) {
    return {Precision::kFp32, "nobody tells whether the device has bf16"};
  }
  if (*least < kFirstWithBf16) {
    return {Precision::kFp32, "a card of compute capability " +
                                  capability_text(*least) + " has no bf16"};
  }
  return {Precision::kBf16, "the cards compute in it"};
}

std::string settle_precision(configs::RunConfig& config,
                             std::span<const int> capabilities) {
  if (config.precision != Precision::kAuto) return "";
  const PrecisionChoice choice = choose_precision(config, capabilities);
  config.precision = choice.precision;
  if (config.command != "train" || parse_device_list(config.device).empty()) {
    return "";
  }
  return "precision: " + precision_text(config) + ", as " + choice.reason +
         (choice.precision == Precision::kBf16
              ? "; --precision fp32 is slower, and rounds less"
              : "");
}

std::string precision_text(const configs::RunConfig& config) {
  return configs::value_text(config, *configs::find_knob("precision"));
}

}  // namespace headroom::cli
