#include "coordinator/run/precision_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom::coordinator {
namespace {

TEST(PrecisionChoice, AutomaticIsThatOfTheCards) {
  const auto chosen =
      [](std::vector<int> capabilities, const std::string& device = "0,1",
         const std::string& command = "train", bool tf32 = false) {
        configs::RunConfig config;
        config.command = command;
        config.device = device;
        config.tf32 = tf32;
        const std::string note = settle_precision(config, capabilities);
        return precision_text(config) + (note.empty() ? "" : " " + note);
      };
  EXPECT_EQ(chosen({90, 80}),
            "bf16 precision: bf16, as the cards compute in it; --precision "
            "fp32 is slower, and rounds less");
  EXPECT_EQ(chosen({90, 75}),
            "fp32 precision: fp32, as 1 of 2 cards has no bf16 (compute "
            "capability 7.5)");
  EXPECT_EQ(chosen({75}, "all"),
            "fp32 precision: fp32, as the card has no bf16 (compute capability "
            "7.5)");
  for (const std::vector<int>& unknown : {std::vector<int>{90, 0}, {}}) {
    EXPECT_EQ(chosen(unknown),
              "fp32 precision: fp32, as it is not known whether the device "
              "has bf16");
  }
  EXPECT_EQ(chosen({}, "cpu"), "fp32");
  EXPECT_EQ(chosen({90}, "0", "val"), "fp32");
  EXPECT_EQ(chosen({90}, "0", "train", /*tf32=*/true),
            "fp32 precision: fp32, as --tf32 is about it");
  configs::RunConfig named;
  named.device = "0";
  named.precision = configs::Precision::kFp32;
  EXPECT_EQ(settle_precision(named, std::vector<int>{90}), "");
  EXPECT_EQ(named.precision, configs::Precision::kFp32);
}

}  // namespace
}  // namespace headroom::coordinator
