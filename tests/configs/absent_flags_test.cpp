#include "configs/absent_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "configs/command_flags.h"
#include "configs/flags.h"
#include "tests/configs/refusal.h"

namespace headroom::configs {
namespace {

std::string refusal(const std::string& command, const std::string& spelling) {
  return refusal_of(
      [&] { answer_unknown_flag(command, spelling, {"--coordinator"}); });
}

// True if the command has the flag: flags of runs and of commands.
bool is_taken(const std::string& command, const std::string& spelling) {
  if ((command == "train" || command == "val") &&
      find_flag(spelling) != nullptr) {
    return true;
  }
  return std::ranges::any_of(command_flags(), [&](const CommandFlag& flag) {
    return belongs_to(flag, command) &&
           std::ranges::count(flag.spellings, spelling) > 0;
  });
}

TEST(AbsentFlags, NoneIsAFlagAndEachGivesTheReason) {
  for (const char* command : {"train", "val", "detect", "export"}) {
    std::set<std::string> seen;
    for (const AbsentFlag& flag : absent_flags(command)) {
      const std::string what = std::string(command) + " " + flag.spelling;
      EXPECT_TRUE(seen.insert(flag.spelling).second) << what;
      EXPECT_FALSE(is_taken(command, flag.spelling)) << what;
      EXPECT_FALSE(flag.why.empty()) << what;
      EXPECT_EQ(flag.remedy.empty(),
                flag.answer == AbsentFlag::Answer::kIgnored)
          << what;
    }
  }
  EXPECT_TRUE(absent_flags("tile").empty());
}

// The flags of YOLOv5's programs, old and new spellings, are accepted or
// explained.
TEST(AbsentFlags, EveryPublishedFlagHasAnAnswer) {
  const std::map<std::string, std::vector<std::string>> published = {
      {"train",
       {"--weights",
        "--cfg",
        "--data",
        "--hyp",
        "--epochs",
        "--batch-size",
        "--batch",
        "--imgsz",
        "--img",
        "--img-size",
        "--rect",
        "--resume",
        "--nosave",
        "--noval",
        "--noautoanchor",
        "--noplots",
        "--evolve",
        "--cache",
        "--cache-images",
        "--image-weights",
        "--device",
        "--multi-scale",
        "--single-cls",
        "--optimizer",
        "--adam",
        "--sync-bn",
        "--workers",
        "--project",
        "--name",
        "--exist-ok",
        "--quad",
        "--cos-lr",
        "--linear-lr",
        "--freeze",
        "--patience",
        "--label-smoothing",
        "--save-period",
        "--seed",
        "--local_rank",
        "--entity",
        "--upload_dataset",
        "--bbox_interval",
        "--artifact_alias",
        "--bucket",
        "--ndjson-console",
        "--ndjson-file",
        "--evolve_population",
        "--resume_evolve",
        "--notest",
        "--log-imgs",
        "--log-artifacts",
        "--logdir",
        "--global_rank",
        "--total-batch-size",
        "--save_period"}},
      {"val", {"--merge",     "--data",        "--weights",   "--batch-size",
               "--imgsz",     "--img",         "--img-size",  "--conf-thres",
               "--iou-thres", "--max-det",     "--task",      "--device",
               "--workers",   "--single-cls",  "--augment",   "--verbose",
               "--save-txt",  "--save-hybrid", "--save-conf", "--save-json",
               "--project",   "--name",        "--exist-ok",  "--half",
               "--dnn"}},
      {"detect", {"--weights",      "--source",
                  "--data",         "--imgsz",
                  "--img",          "--img-size",
                  "--conf-thres",   "--iou-thres",
                  "--max-det",      "--device",
                  "--view-img",     "--save-txt",
                  "--save-format",  "--save-csv",
                  "--save-conf",    "--save-crop",
                  "--nosave",       "--classes",
                  "--agnostic-nms", "--augment",
                  "--visualize",    "--update",
                  "--project",      "--name",
                  "--exist-ok",     "--line-thickness",
                  "--hide-labels",  "--hide-conf",
                  "--half",         "--dnn",
                  "--vid-stride",   "--output",
                  "--save-img",     "--fourcc",
                  "--tfl-int8"}},
      {"export",
       {"--data",           "--weights",       "--imgsz",     "--img",
        "--img-size",       "--batch-size",    "--device",    "--half",
        "--inplace",        "--keras",         "--optimize",  "--int8",
        "--per-tensor",     "--dynamic",       "--simplify",  "--opset",
        "--verbose",        "--workspace",     "--nms",       "--agnostic-nms",
        "--topk-per-class", "--topk-all",      "--iou-thres", "--conf-thres",
        "--include",        "--train",         "--cache",     "--mlmodel",
        "--grid",           "--opset-version", "--tfl-int8"}}};
  for (const auto& [command, spellings] : published) {
    for (const std::string& spelling : spellings) {
      EXPECT_TRUE(is_taken(command, spelling) ||
                  find_absent_flag(command, spelling) != nullptr)
          << command << " " << spelling;
    }
    // Prefixes are searched among these.
    for (const std::string& spelling : published_flags(command)) {
      EXPECT_EQ(std::ranges::count(spellings, spelling), 1)
          << command << " " << spelling;
    }
    EXPECT_GE(published_flags(command).size(), 24u) << command;
  }
  EXPECT_EQ(published_flags("plan"), published_flags("train"));
  EXPECT_TRUE(published_flags("tile").empty());
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
