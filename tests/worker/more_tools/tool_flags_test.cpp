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
#include "tests/support/error_text.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/more_tools/more_tools.h"

namespace headroom::tools {
namespace {

class EveryTool : public ::testing::TestWithParam<const char*> {};

// Every tool requires some arguments. A tool checks its bindings before its
// arguments, so this refusal shows that the bindings are valid.
TEST_P(EveryTool, ReadsTheFlagsOfTheTable) {
  const ToolCommand* const tool = find_any_tool(GetParam());
  ASSERT_NE(tool, nullptr);
  EXPECT_THAT(error_text([&] { call(tool, {GetParam()}); }),
              ::testing::HasSubstr(" is required: "));
}

// headroom passes on the flags that are declared for a command. It uses
// --project and --name of detect itself, and all but three flags of val.
TEST_P(EveryTool, BindsTheFlagsOfItsCommand) {
  const std::string name = GetParam();
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
    EXPECT_THAT(error_text([&] {
                  call(find_any_tool(name), {name, word});
                }),
                ::testing::HasSubstr(" is required: "))
        << word;
  }
}

INSTANTIATE_TEST_SUITE_P(ToolFlags, EveryTool,
                         ::testing::Values("detect", "export", "pack", "prune",
                                           "tile", "val", "verify"));

// The flags of `prune`.
struct PruneFlags {
  std::string weights, cfg, data, size;
  std::filesystem::path output;
  double share = 0;
  int64_t batch = 0;
  int threads = 7;

  // `flag` is given beside the weights.
  void parse(std::string flag) {
    std::string name = "prune", word = "--weights=a.pt";
    std::vector<char*> arguments = {name.data(), word.data(), flag.data(),
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
  }
};

TEST(ToolFlags, ThatAreNotGiven_HaveTheDefaultsOfTheTable) {
  PruneFlags flags;
  flags.parse("--batch-size=2");
  EXPECT_EQ(flags.weights, "a.pt");
  EXPECT_EQ(flags.share, 0.3);
  EXPECT_EQ(flags.output, "pruned.safetensors");
  EXPECT_EQ(flags.size, "");    // the default depends on the weights
  EXPECT_EQ(flags.batch, 2);    // the given value
  EXPECT_EQ(flags.threads, 7);  // no default, so it keeps 7
}

std::string prune_refusal(const std::string& flag) {
  return error_text([&] { PruneFlags().parse(flag); });
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
  EXPECT_EQ(prune_refusal("--imgsz=64"), "");
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
