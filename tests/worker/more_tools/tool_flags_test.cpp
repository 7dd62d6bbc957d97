// The flags of the tools: each of configs/command_flags.h is bound to a value
// of its tool, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/command_flags.h"
#include "parallel/base/check.h"
#include "worker/more_tools/more_tools.h"

namespace headroom::tools {
namespace {

class EveryTool : public ::testing::TestWithParam<const char*> {};

// The bindings are checked before the arguments, some of which every tool
// requires.
TEST_P(EveryTool, ReadsTheFlagsOfTheTable) {
  std::string name = GetParam();
  std::vector<char*> arguments = {name.data(), nullptr};
  const ToolCommand* const tool = find_any_tool(name);
  ASSERT_NE(tool, nullptr);
  try {
    tool->run(1, arguments.data());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(" is required: "));
  }
}

INSTANTIATE_TEST_SUITE_P(ToolFlags, EveryTool,
                         ::testing::Values("detect", "export", "pack", "prune",
                                           "tile", "val", "verify"));

TEST(ToolFlags, ThatAreNotGiven_HaveTheDefaultsOfTheTable) {
  std::string weights, cfg, data, size;
  std::filesystem::path output;
  double share = 0;
  int64_t batch = 0;
  int threads = 7;
  std::string name = "prune", word = "--weights=a.pt", other = "--batch-size=2";
  std::vector<char*> arguments = {name.data(), word.data(), other.data(),
                                  nullptr};
  parse_arguments({{"--weights", &weights},
                   {"--cfg", &cfg},
                   {"--share", &share},
                   {"--output", &output},
                   {"--data", &data},
                   {"--img", &size},
                   {"--batch", &batch},
                   {"--threads", &threads}},
                  3, arguments.data());
  EXPECT_EQ(weights, "a.pt");
  EXPECT_EQ(share, 0.3);
  EXPECT_EQ(output, "pruned.safetensors");
  EXPECT_EQ(size, "");    // its default depends on the weights
  EXPECT_EQ(batch, 2);    // given
  EXPECT_EQ(threads, 7);  // without a default
}

// The refusal of `prune` for a flag in this form.
std::string prune_refusal(const std::string& flag) {
  std::string weights, cfg, data, size;
  std::filesystem::path output;
  double share = 0;
  int64_t batch = 0;
  int threads = 0;
  std::string name = "prune", word = "--weights=a.pt", other = flag;
  std::vector<char*> arguments = {name.data(), word.data(), other.data(),
                                  nullptr};
  try {
    parse_arguments({{"--weights", &weights},
                     {"--cfg", &cfg},
                     {"--share", &share},
                     {"--output", &output},
                     {"--data", &data},
                     {"--img", &size},
                     {"--batch", &batch},
                     {"--threads", &threads}},
                    3, arguments.data());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ToolFlags, AWrongNumberIsRefusedByTheFlagAsItWasTyped) {
  EXPECT_EQ(prune_refusal("--share=25%"),
            "[command line] --share 25%: 25% is not from 0.001 to 0.999: write "
            "--share 0.25");
  EXPECT_EQ(prune_refusal("--share=nan"),
            "[command line] --share nan: nan is not from 0.001 to 0.999: for "
            "example --share 0.3");
  EXPECT_EQ(prune_refusal("--batch-size=0"),
            "[command line] --batch-size 0: 0 is not a whole number from 1 to "
            "65536: for example --batch-size 16");
  EXPECT_EQ(prune_refusal("--batch=2.5"),
            "[command line] --batch 2.5: 2.5 is not a whole number from 1 to "
            "65536: for example --batch 16");
  EXPECT_EQ(prune_refusal("--imgsz=abc"),
            "[command line] --imgsz abc is no image size: give pixels, for "
            "example --imgsz 640");
  EXPECT_EQ(prune_refusal("--imgsz=64"), "accepted");
}

class Bindings : public ::testing::Test {
 protected:
  std::string detections_, ground_truth_;
  bool json_ = false;
  std::vector<FlagBinding> bindings_ = {{"--detections", &detections_},
                                        {"--ground-truth", &ground_truth_},
                                        {"--json", &json_}};
};

TEST_F(Bindings, OfEachFlagOnce_AreRight) {
  EXPECT_EQ(binding_error("val", bindings_), "");
}

TEST_F(Bindings, WithoutOneOfTheFlags_AreRefused) {
  bindings_.pop_back();
  EXPECT_EQ(binding_error("val", bindings_), "val --json is not bound");
  std::string name = "val";
  std::vector<char*> arguments = {name.data(), nullptr};
  EXPECT_THROW(parse_arguments(bindings_, 1, arguments.data()), CheckFailure);
}

TEST_F(Bindings, OfUnknownFlags_AreRefused) {
  bindings_.push_back({"--strict", &json_});
  EXPECT_EQ(binding_error("val", bindings_),
            "val --strict is not in the table");
}

TEST_F(Bindings, OfAFlagThatHeadroomKeeps_AreRefused) {
  bindings_.push_back({"--metrics", &detections_});
  EXPECT_EQ(binding_error("val", bindings_),
            "val --metrics is not in the table");
}

TEST_F(Bindings, OfAFlagTwice_AreRefused) {
  bindings_.push_back({"--json", &json_});
  EXPECT_EQ(binding_error("val", bindings_), "val --json is bound twice");
}

TEST_F(Bindings, OfASwitchToAText_AreRefused) {
  bindings_.back().target = &detections_;
  EXPECT_EQ(binding_error("val", bindings_), "val --json has no value");
}

TEST_F(Bindings, OfAValueToASwitch_AreRefused) {
  bindings_.front().target = &json_;
  EXPECT_EQ(binding_error("val", bindings_), "val --detections has a value");
}

}  // namespace
}  // namespace headroom::tools
