#include "configs/absent_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "configs/options.h"
#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::string& command, const std::string& spelling) {
  return testing::refusal_of([&] { answer_unknown_flag(command, spelling); });
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
        "--total-batch-size"}},
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
  EXPECT_EQ(refusal("detect", "--epochs"),
            "[config] --epochs is a flag of headroom train, not of headroom "
            "detect: leave it out");
  EXPECT_EQ(refusal("train", "--degrees"),
            "[config] --degrees has no flag of its own: use --set "
            "hyp.degrees=VALUE");
  EXPECT_EQ(refusal("val", "--warmup-epochs"),
            "[config] --warmup-epochs has no flag of its own: use --set "
            "hyp.warmup_epochs=VALUE");
  EXPECT_EQ(refusal("train", "--keep-checkpoints"),
            "[config] --keep-checkpoints has no flag of its own: use --set "
            "keep_checkpoints=VALUE");
  EXPECT_EQ(refusal("train", "--save"),
            "[config] --save: this is written otherwise here: use --nosave for "
            "--save False, nothing for --save True");
  EXPECT_EQ(refusal("export", "--format"),
            "[config] --format: this is written otherwise here: use --include "
            "VALUE");
  EXPECT_EQ(refusal("train", "--gpu-memory"),
            "[config] --gpu-memory is a flag of headroom plan, not of headroom "
            "train: ask headroom plan, and leave it out here: a run takes what "
            "--device and --memory-limit give it");
  EXPECT_EQ(refusal("train", "--opset"),
            "[config] --opset: YOLOv5 or yolo has this for export, not for "
            "headroom train: leave it out");
  EXPECT_EQ(refusal("detect", "--quad"),
            "[config] --quad: YOLOv5 or yolo has this for training, not for "
            "headroom detect: leave it out");
  EXPECT_EQ(refusal("train", "--epoch"),
            "[config] unknown flag --epoch: did you mean '--epochs'?");
  EXPECT_EQ(refusal("val", "--coordinater"),
            "[config] unknown flag --coordinater: did you mean "
            "'--coordinator'?");
  EXPECT_EQ(refusal("val", "--wavelength"),
            "[config] unknown flag --wavelength: headroom val --help lists the "
            "flags");
  EXPECT_EQ(answer_unknown_flag("train", "--verbose"),
            "--verbose changes nothing: every class is always listed");
}

// All arguments of ultralytics' yolo with a value each, by headroom's command
// for the same mode.
const std::map<std::string, std::string> kYoloArguments = {
    {"train",
     "model=yolov8n.pt data=coco8.yaml epochs=100 time=0.5 patience=100 "
     "batch=16 "
     "imgsz=640 save=True save_period=-1 cache=True device=0 workers=8 "
     "project=p name=n exist_ok=True pretrained=True optimizer=auto seed=0 "
     "deterministic=True verbose=True single_cls=True classes=[0,2] rect=True "
     "multi_scale=True cos_lr=True close_mosaic=10 resume=True amp=True "
     "fraction=0.5 profile=True freeze=10 lr0=0.01 lrf=0.01 momentum=0.937 "
     "weight_decay=0.0005 warmup_epochs=3 warmup_momentum=0.8 "
     "warmup_bias_lr=0.1 box=7.5 cls=0.5 cls_pw=1 dfl=1.5 pose=12 kobj=1 "
     "nbs=64 "
     "overlap_mask=True mask_ratio=4 dropout=0.1 label_smoothing=0.1 val=True "
     "plots=True compile=True hsv_h=0.015 hsv_s=0.7 hsv_v=0.4 degrees=1 "
     "translate=0.1 scale=0.5 shear=1 perspective=0.0001 flipud=0.5 fliplr=0.5 "
     "bgr=0.1 mosaic=1 mixup=0.1 cutmix=0.1 copy_paste=0.1 "
     "copy_paste_mode=flip "
     "auto_augment=randaugment erasing=0.4 crop_fraction=1 augmentations=[] "
     "cfg=custom.yaml rle=1 angle=1 opset=17 show=True simplify=True"},
    {"val",
     "model=yolov8n.pt data=coco8.yaml imgsz=640 batch=16 save_json=True "
     "save_hybrid=True conf=0.001 iou=0.7 max_det=300 half=True device=0 "
     "dnn=True plots=True classes=0 rect=True split=val project=p name=n "
     "exist_ok=True verbose=True save_txt=True save_conf=True workers=8 "
     "agnostic_nms=True single_cls=True visualize=True augment=True "
     "compile=True end2end=True"},
    {"detect",
     "model=yolov8n.pt source=bus.jpg conf=0.25 iou=0.7 imgsz=640 rect=True "
     "half=True device=0 batch=1 max_det=300 vid_stride=1 stream_buffer=True "
     "visualize=True augment=True agnostic_nms=True classes=[0,2] "
     "retina_masks=True embed=[1] project=p name=n exist_ok=True stream=True "
     "verbose=True compile=True end2end=True show=True save=True "
     "save_frames=True save_txt=True save_conf=True save_crop=True "
     "show_labels=True show_conf=True show_boxes=True line_width=2 boxes=True "
     "hide_labels=True hide_conf=True line_thickness=2 dnn=True data=d.yaml "
     "tracker=botsort.yaml persist=True"},
    {"export",
     "model=yolov8n.pt format=onnx imgsz=640 keras=True optimize=True "
     "half=True "
     "int8=True dynamic=True simplify=True opset=17 workspace=4 nms=True "
     "batch=1 device=0 data=d.yaml fraction=1 conf=0.25 iou=0.7 max_det=300 "
     "agnostic_nms=True end2end=True verbose=True project=p name=n "
     "exist_ok=True compile=True"}};

std::vector<std::string> pairs_of(const std::string& command) {
  std::istringstream in(kYoloArguments.at(command));
  return {std::istream_iterator<std::string>(in), {}};
}

// Returns headroom's flags for a KEY=VALUE of ultralytics, or the refusal.
std::string words_or_refusal(const std::string& command,
                             const std::string& pair) {
  std::string words;
  const std::string refused = error_text([&] {
    for (const std::string& word : words_of_pair(command, pair)) {
      words += (words.empty() ? "" : " ") + word;
    }
  });
  return refused.empty() ? words : refused;
}

TEST(AbsentFlags, EveryArgumentOfYoloHasAnAnswerAsAPair) {
  for (const auto& [command, all] : kYoloArguments) {
    for (const std::string& pair : pairs_of(command)) {
      const std::string answer = words_or_refusal(command, pair);
      EXPECT_THAT(answer, Not(HasSubstr("unknown flag"))) << command << pair;
      // The program accepts each flag that the answer tells the user to type.
      std::istringstream words(answer);
      for (std::string word; words >> word && !answer.starts_with('[');) {
        if (!word.starts_with("--")) continue;
        EXPECT_TRUE(is_taken(command, word)) << command << " " << answer;
      }
    }
  }
}

TEST(AbsentFlags, EveryArgumentOfYoloHasAnAnswerAsAFlag) {
  for (const auto& [command, all] : kYoloArguments) {
    for (const std::string& pair : pairs_of(command)) {
      std::string flag = "--" + pair.substr(0, pair.find('='));
      std::ranges::replace(flag, '_', '-');
      // A prefix of a flag is accepted too (deploy/cli/args).
      const bool is_prefix = std::ranges::any_of(
          published_flags(command), [&](const std::string& published) {
            return published.starts_with(flag);
          });
      if (is_prefix || is_taken(command, flag)) continue;
      const std::string answer = error_text(
          [&, &command = command] { answer_unknown_flag(command, flag); });
      EXPECT_THAT(answer, Not(HasSubstr("unknown flag"))) << command;
    }
  }
}

TEST(AbsentFlags, APairIsWrittenAsFlags) {
  const std::vector<std::array<std::string, 3>> expected = {
      {"train", "model=yolov5n.yaml", "--cfg yolov5n.yaml"},
      {"train", "model=yolov5n", "--cfg yolov5n"},
      {"train", "model=w.pt", "--weights w.pt"},
      {"train", "imgsz=640,480", "--img 640 480"},
      {"train", "freeze=[0,1]", "--freeze 0 1"},
      {"train", "cos_lr=True", "--cos-lr"},
      {"train", "cos_lr=False", ""},
      {"train", "cache=False", ""},
      {"train", "cache=ram",
       "[config] --cache: caching images is not in this version: leave it out; "
       "--workers N reads ahead with N threads"},
      {"train", "val=False", "--noval"},
      {"train", "amp=False", "--precision fp32"},
      {"train", "lr0=0.02", "--set hyp.lr0=0.02"},
      {"train", "optimizer=auto", "--optimizer auto"},
      {"train", "resume=True", "--resume"},
      {"train", "name=a b", "--name a b"},
      {"val", "split=test", "--task test"},
      {"val", "conf=0.1", "--conf-thres 0.1"},
      {"detect", "classes=[0, 2]", "--classes 0 2"},
      {"detect", "show_labels=False", "--hide-labels"},
      {"export", "format=onnx", "--include onnx"},
      {"train", "wavelength=3",
       "[config] unknown flag --wavelength: headroom train --help lists the "
       "flags"},
  };
  for (const auto& [command, pair, words] : expected) {
    EXPECT_EQ(words_or_refusal(command, pair), words) << command << pair;
  }
}

TEST(AbsentFlags, ModesAndTasksOfYoloHaveAnAnswer) {
  for (const char* mode : {"train", "val", "predict", "export"}) {
    EXPECT_FALSE(command_of_mode(mode).empty()) << mode;
  }
  EXPECT_EQ(command_of_mode("trian"), "");
  for (const char* word : {"track", "tune", "benchmark", "segment", "semantic",
                           "pose", "classify", "obb", "checks", "settings",
                           "version", "hub", "solutions", "copy-cfg"}) {
    const OtherWord* const other = find_other_word(word);
    ASSERT_NE(other, nullptr) << word;
    EXPECT_FALSE(other->why.empty() || other->use.empty()) << word;
  }
  EXPECT_EQ(find_other_word("exp"), nullptr);
}

}  // namespace
}  // namespace headroom::configs
