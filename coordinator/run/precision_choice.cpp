#include "coordinator/run/precision_choice.h"

#include <algorithm>

#include "configs/options.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

using configs::Precision;

// The first compute capability with bfloat16. Older cards emulate it in
// float32, which is slower than float32 itself.
constexpr int kFirstWithBf16 = 80;

}  // namespace

PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const int> capabilities) {
  if (config.command != "train") {
    return {Precision::kFp32, "weights are judged in it"};
  }
  if (config.tf32) return {Precision::kFp32, "--tf32 is about it"};
  if (!computes_on_cards(config.device)) {
    return {Precision::kFp32, "the CPU computes in it"};
  }
  const auto least = std::ranges::min_element(capabilities);
  if (least == capabilities.end() || *least == 0) {
    return {Precision::kFp32, "it is not known whether the device has bf16"};
  }
  if (*least < kFirstWithBf16) {
    const auto without = std::ranges::count_if(
        capabilities, [](int one) { return one < kFirstWithBf16; });
    const auto all = std::ssize(capabilities);
    return {Precision::kFp32,
            (all == 1 ? "the card" : cat(without, " of ", all, " cards")) +
                (without == 1 ? " has no bf16 (compute capability "
                              : " have no bf16 (compute capability ") +
                capability_text(*least) + ")"};
  }
  return {Precision::kBf16, "the cards compute in it"};
}

std::string settle_precision(configs::RunConfig& config,
                             std::span<const int> capabilities) {
  if (config.precision != Precision::kAuto) return "";
  const PrecisionChoice choice = choose_precision(config, capabilities);
  config.precision = choice.precision;
  if (config.command != "train" || !computes_on_cards(config.device)) {
    return "";
  }
  return "precision: " + precision_text(config) + ", as " + choice.reason +
         (choice.precision == Precision::kBf16
              ? "; --precision fp32 is slower, and rounds less"
              : "");
}

std::string precision_text(const configs::RunConfig& config) {
  return configs::value_text(config, *configs::find_key("precision"));
}

}  // namespace headroom::coordinator
