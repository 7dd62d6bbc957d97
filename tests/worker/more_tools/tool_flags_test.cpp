// The flags of the tools: each tool reads those that are declared for it
// (configs/command_options.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/options.h"
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

// headroom passes on what is declared for a command. It keeps --project and
// --name of detect to itself, and all of val's but three.
TEST_P(EveryTool, BindsTheFlagsOfItsCommand) {
  std::string name = GetParam();
  for (const configs::Option& option : configs::command_options()) {
    const std::string& flag = option.names.front();
    if (!belongs_to(option, name) || option.is_required ||
        (name == "val" && flag != "--json") || flag == "--project" ||
        flag == "--name") {
      continue;
    }
    std::string word = flag;
    if (!is_switch(option)) {
      word += "=" + (option.default_value.empty() ? "1" : option.default_value);
    }
    std::vector<char*> arguments = {name.data(), word.data(), nullptr};
    try {
      find_any_tool(name)->run(2, arguments.data());
      ADD_FAILURE() << "accepted " << word;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(" is required: ")) << word;
    }
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

TEST(ToolFlags, AFlagThatTheToolDoesNotHave_IsRefused) {
  EXPECT_EQ(prune_refusal("--strict"),
            "[command line] unknown flag --strict: headroom prune --help shows "
            "what may stand where");
}

TEST(ToolFlags, ABindingToNoFlagOrToAnotherKind_IsAFault) {
  std::string name = "val", text;
  bool is_set = false;
  std::vector<char*> arguments = {name.data(), nullptr};
  EXPECT_THROW(parse_arguments({{"--strict", &is_set}}, 1, arguments.data()),
               CheckFailure);
  EXPECT_THROW(parse_arguments({{"--json", &text}}, 1, arguments.data()),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::tools
