#include "configs/absent_flags.h"

#include <gtest/gtest.h>

#include <set>

#include "configs/flags.h"
#include "tests/configs/refusal.h"

namespace headroom::configs {
namespace {

std::string refusal(const std::string& command, const std::string& spelling) {
  return refusal_of(
      [&] { answer_unknown_flag(command, spelling, {"--coordinator"}); });
}

TEST(AbsentFlags, NoneIsAFlagAndEachSaysWhy) {
  std::set<std::string> seen;
  for (const AbsentFlag& flag : absent_flags()) {
    EXPECT_TRUE(seen.insert(flag.spelling).second) << flag.spelling;
    EXPECT_EQ(find_flag(flag.spelling), nullptr) << flag.spelling;
    EXPECT_FALSE(flag.why.empty()) << flag.spelling;
    EXPECT_EQ(flag.remedy.empty(), flag.answer == AbsentFlag::Answer::kIgnored)
        << flag.spelling;
  }
}

// The flags of YOLOv5's train and val that have a meaning elsewhere.
TEST(AbsentFlags, EveryPublishedFlagHasAnAnswer) {
  for (const char* spelling :
       {"--weights",       "--cfg",          "--data",
        "--hyp",           "--epochs",       "--batch-size",
        "--imgsz",         "--img",          "--img-size",
        "--rect",          "--resume",       "--nosave",
        "--noval",         "--noautoanchor", "--noplots",
        "--evolve",        "--cache",        "--image-weights",
        "--device",        "--multi-scale",  "--single-cls",
        "--optimizer",     "--sync-bn",      "--workers",
        "--project",       "--name",         "--exist-ok",
        "--quad",          "--cos-lr",       "--label-smoothing",
        "--patience",      "--freeze",       "--save-period",
        "--seed",          "--entity",       "--upload_dataset",
        "--bbox_interval", "--bucket",       "--conf-thres",
        "--iou-thres",     "--max-det",      "--task",
        "--augment",       "--verbose",      "--save-txt",
        "--save-hybrid",   "--save-conf",    "--save-json",
        "--half",          "--dnn"}) {
    EXPECT_TRUE(find_flag(spelling) != nullptr ||
                find_absent_flag(spelling) != nullptr)
        << spelling;
  }
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
