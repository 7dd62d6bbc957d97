#include "coordinator/run/precision_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom::coordinator {
namespace {

std::vector<wire::NodeCard> cards_of(const std::vector<int>& capabilities,
                                     const std::string& name = "") {
  std::vector<wire::NodeCard> cards;
  for (const int capability : capabilities) {
    cards.push_back({.name = name, .compute_capability = capability});
  }
  return cards;
}

std::string chosen(const std::vector<wire::NodeCard>& cards,
                   const std::string& device = "0,1",
                   const std::string& command = "train", bool tf32 = false) {
  configs::RunConfig config;
  config.command = command;
  config.device = device;
  config.tf32 = tf32;
  const std::string note = settle_precision(config, cards);
  return precision_text(config) + (note.empty() ? "" : " " + note);
}

TEST(PrecisionChoice, AutomaticIsThatOfTheCards) {
  EXPECT_EQ(chosen(cards_of({90, 80})),
            "bf16 precision: bf16, as the cards compute in it; --precision "
            "fp32 is slower, and rounds less");
  EXPECT_EQ(chosen(cards_of({90, 75}, "Tesla T4")),
            "fp16 precision: fp16, as 1 of 2 cards has no bf16 (compute "
            "capability 7.5); the loss is scaled; --precision fp32 is slower, "
            "and rounds less");
  EXPECT_EQ(chosen(cards_of({90, 70})),
            "fp32 precision: fp32, as 1 of 2 cards has no bf16 (compute "
            "capability 7.0)");
  for (const std::vector<int>& unknown : {std::vector<int>{90, 0}, {}}) {
    EXPECT_EQ(chosen(cards_of(unknown)),
              "fp32 precision: fp32, as it is not known whether the device "
              "has bf16");
  }
  EXPECT_EQ(chosen({}, "cpu"), "fp32");
  EXPECT_EQ(chosen(cards_of({90}), "0", "val"), "fp32");
  EXPECT_EQ(chosen(cards_of({90}), "0", "train", /*tf32=*/true),
            "fp32 precision: fp32, as --tf32 is about it");
  configs::RunConfig named;
  named.device = "0";
  named.precision = configs::Precision::kFp32;
  EXPECT_EQ(settle_precision(named, cards_of({90})), "");
  EXPECT_EQ(named.precision, configs::Precision::kFp32);
}

// Cards of capability 7.5: with tensor cores float16 is used, without them it
// is known for NaN, and must pass a check.
TEST(PrecisionChoice, Float16NeedsTensorCoresOrACheck) {
  for (const char* name : {"Tesla T4", "NVIDIA GeForce RTX 2060"}) {
    EXPECT_EQ(chosen(cards_of({75}, name), "all"),
              "fp16 precision: fp16, as the card has no bf16 (compute "
              "capability 7.5); the loss is scaled; --precision fp32 is "
              "slower, and rounds less")
        << name;
  }
  for (const char* name :
       {"NVIDIA GeForce GTX 1650", "NVIDIA GeForce GTX 1660 Ti",
        "a card that the table lacks"}) {
    EXPECT_EQ(chosen(cards_of({75}, name), "all"),
              std::string("fp16 precision: fp16, as ") + name +
                  " has no bf16, and is not known to have tensor cores; the "
                  "loss is scaled; one step is checked first, and fp32 taken "
                  "if it fails; --precision fp32 is slower, and rounds less")
        << name;
  }
}

}  // namespace
}  // namespace headroom::coordinator
