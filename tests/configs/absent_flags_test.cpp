#include "configs/absent_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "configs/options.h"
#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

std::string refusal(const std::string& command, const std::string& spelling) {
  return testing::refusal_of(
      [&] { answer_unknown_flag(command, spelling, {"--coordinator"}); });
}

// Returns whether a user may pass the flag.
bool is_taken(const std::string& command, const std::string& spelling) {
  const Option* const option = find_option(command, spelling);
  return option != nullptr && !option->is_internal;
}

TEST(AbsentFlags, NoneIsAFlagAndEachGivesTheReason) {
  for (const char* command : {"train", "val", "detect", "export"}) {
    std::set<std::string> seen;
    for (const AbsentFlag& flag : absent_flags(command)) {
      const std::string what = std::string(command) + " " + flag.spelling;
      EXPECT_TRUE(seen.insert(flag.spelling).second) << what;
      EXPECT_FALSE(is_taken(command, flag.spelling)) << what;
      EXPECT_FALSE(flag.why.empty()) << what;
    }
  }
  EXPECT_TRUE(absent_flags("tile").empty());
}

// Every flag of YOLOv5's programs, including those of older versions, is either
// accepted or refused with an answer.
TEST(AbsentFlags, EveryPublishedFlagHasAnAnswer) {
  const std::map<std::string, std::vector<std::string>> older = {
      {"train",
       {"--batch", "--cache-images", "--adam", "--linear-lr", "--notest",
        "--log-imgs", "--log-artifacts", "--logdir", "--global_rank",
        "--total-batch-size", "--save_period"}},
      {"val", {"--merge"}},
      {"detect", {"--output", "--save-img", "--fourcc", "--tfl-int8"}},
      {"export", {"--train", "--grid", "--opset-version", "--tfl-int8"}}};
  for (const auto& [command, old_spellings] : older) {
    std::vector<std::string> spellings = published_flags(command);
    EXPECT_GE(spellings.size(), 24u) << command;
    spellings.insert(spellings.end(), old_spellings.begin(),
                     old_spellings.end());
    for (const std::string& spelling : spellings) {
      EXPECT_EQ(std::ranges::count(spellings, spelling), 1)
          << command << " " << spelling;
      EXPECT_TRUE(is_taken(command, spelling) ||
                  find_absent_flag(command, spelling) != nullptr)
          << command << " " << spelling;
    }
  }
  EXPECT_EQ(published_flags("plan"), published_flags("train"));
  EXPECT_TRUE(published_flags("tile").empty());
}

TEST(AbsentFlags, AMissingChoiceIsExplained) {
  EXPECT_EQ(absent_choice("task", "speed"),
            "leave it out, and take the time of the command");
  EXPECT_EQ(absent_choice("task", "test"), std::nullopt);
  EXPECT_EQ(absent_choice("epochs", "speed"), std::nullopt);
}

TEST(AbsentFlags, Answers) {
  EXPECT_EQ(refusal("train", "--adam"),
            "[config] --adam: YOLOv5 has replaced it by --optimizer: use "
            "--optimizer Adam");
  EXPECT_EQ(refusal("train", "--evolve"),
            "[config] --evolve: the genetic search of hyper-parameters needs "
            "hundreds of whole runs: use a published set, --hyp scratch-low or "
            "scratch-high");
  EXPECT_EQ(refusal("train", "--conf-thres"),
            "[config] --conf-thres is a flag of headroom val, not of headroom "
            "train: leave it out, or set its key with --set (headroom val "
            "--help)");
  EXPECT_EQ(refusal("train", "--gpu-memory"),
            "[config] --gpu-memory is a flag of headroom plan, not of headroom "
            "train: ask headroom plan, and leave it out here: a run takes what "
            "--device and --memory-limit give it");
  EXPECT_EQ(refusal("train", "--epoch"),
            "[config] unknown flag --epoch: did you mean '--epochs'?");
  EXPECT_EQ(refusal("val", "--coordinater"),
            "[config] unknown flag --coordinater: did you mean "
            "'--coordinator'?");
  EXPECT_EQ(refusal("val", "--wavelength"),
            "[config] unknown flag --wavelength: headroom val --help lists the "
            "flags");
  EXPECT_EQ(answer_unknown_flag("train", "--verbose", {}),
            "--verbose changes nothing: every class is always listed");
}

}  // namespace
}  // namespace headroom::configs
