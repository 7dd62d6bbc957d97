#include "coordinator/run/precision_choice.h"

#include <algorithm>

#include "configs/cluster_catalogue.h"
#include "configs/options.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

using configs::Precision;

// The first compute capability with bfloat16. Older cards emulate it in
// float32, which is slower than float32 itself.
constexpr int kFirstWithBf16 = 80;
// The first compute capability with float16 for which Headroom's LibTorch has
// code.
constexpr int kFirstWithFp16 = 75;

// Whether the table of cards lists this card with tensor cores. GTX 16 and some
// small cards, of capability 7.5 too, have none and are known for NaN in
// float16.
bool has_tensor_cores(const wire::NodeCard& card) {
  const configs::Instance* const known = configs::known_card(card.name);
  return known != nullptr && known->tensor_teraflops > known->float_teraflops;
}

}  // namespace

PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const wire::NodeCard> cards) {
  if (config.command != "train") {
    return {Precision::kFp32, "weights are judged in it"};
  }
  if (config.tf32) return {Precision::kFp32, "--tf32 is about it"};
  if (!computes_on_cards(config.device)) {
    return {Precision::kFp32, "the CPU computes in it"};
  }
  const auto least =
      std::ranges::min_element(cards, {}, &wire::NodeCard::compute_capability);
  if (least == cards.end() || least->compute_capability == 0) {
    return {Precision::kFp32, "it is not known whether the device has bf16"};
  }
  if (least->compute_capability >= kFirstWithBf16) {
    return {Precision::kBf16, "the cards compute in it"};
  }
  const auto plain =
      std::ranges::find_if_not(cards, [](const wire::NodeCard& card) {
        return card.compute_capability >= kFirstWithBf16 ||
               has_tensor_cores(card);
      });
  if (plain != cards.end() && least->compute_capability >= kFirstWithFp16) {
    return {Precision::kFp16,
            plain->name + " has no bf16, and is not known to have tensor cores",
            /*checks_float16=*/true};
  }
  const auto without =
      std::ranges::count_if(cards, [](const wire::NodeCard& card) {
        return card.compute_capability < kFirstWithBf16;
      });
  const std::string reason =
      (cards.size() == 1 ? "the card"
                         : cat(without, " of ", cards.size(), " cards")) +
      (without == 1 ? " has no bf16 (compute capability "
                    : " have no bf16 (compute capability ") +
      capability_text(least->compute_capability) + ")";
  return {least->compute_capability < kFirstWithFp16 ? Precision::kFp32
                                                     : Precision::kFp16,
          reason};
}

std::string settle_precision(configs::RunConfig& config,
                             std::span<const wire::NodeCard> cards) {
  if (config.precision != Precision::kAuto) return "";
  const PrecisionChoice choice = choose_precision(config, cards);
  config.precision = choice.precision;
  config.checks_float16 = choice.checks_float16;
  if (config.command != "train" || !computes_on_cards(config.device)) {
    return "";
  }
  return precision_line(config, choice.reason);
}

std::string precision_line(const configs::RunConfig& config,
                           const std::string& reason) {
  const bool is_short = config.precision == Precision::kBf16 ||
                        config.precision == Precision::kFp16;
  return "precision: " + precision_text(config) + ", as " + reason +
         (config.precision == Precision::kFp16 ? "; the loss is scaled" : "") +
         (config.checks_float16 ? "; one step is checked first, and fp32 "
                                  "taken if it fails"
                                : "") +
         (is_short ? "; --precision fp32 is slower, and rounds less" : "");
}

std::string precision_text(const configs::RunConfig& config) {
  return configs::value_text(config, *configs::find_key("precision"));
}

}  // namespace headroom::coordinator
