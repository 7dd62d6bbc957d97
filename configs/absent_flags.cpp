#include "configs/absent_flags.h"

#include <algorithm>
#include <map>

#include "configs/command_flags.h"
#include "configs/flags.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

const std::string kNotYet = " is not in this version";
const std::string kNoSearch =
    "the genetic search of hyper-parameters needs hundreds of whole runs";
const std::string kPublishedSets =
    "use a published set, --hyp scratch-low or scratch-high";
const std::string kNoLogger = "no online logger is part of Headroom";
const std::string kRenamed = "YOLOv5 has renamed it";
const std::string kNoTensorFlow = "TensorFlow's formats are not written";

constexpr auto kRefused = AbsentFlag::Answer::kRefused;
constexpr auto kIgnored = AbsentFlag::Answer::kIgnored;

const std::vector<AbsentFlag>& of_train_and_val() {
  static const std::vector<AbsentFlag> all = {
      // YOLOv5's train has these.
      {"--verbose", kIgnored, 0, "every class is always listed", ""},
      {"--local_rank", kRefused, 1,
       "ranks are given by the coordinator, not by a launcher's flag",
       "use --processes N, or start headroom under mpirun"},
      {"--local-rank", kRefused, 1,
       "ranks are given by the coordinator, not by a launcher's flag",
       "use --processes N, or start headroom under mpirun"},
      {"--evolve", kRefused, 1, kNoSearch, kPublishedSets},
      {"--cache", kRefused, 1, "caching images" + kNotYet,
       "leave it out; --workers N reads ahead with N threads"},
      {"--cache-images", kRefused, 1, "caching images" + kNotYet,
       "leave it out; --workers N reads ahead with N threads"},
      {"--evolve_population", kRefused, 1, kNoSearch, kPublishedSets},
      {"--resume_evolve", kRefused, 1, kNoSearch, kPublishedSets},
      {"--quad", kRefused, 0, "the loader of four images in one" + kNotYet,
       "leave it out; use a larger --img"},
      {"--adam", kRefused, 0, "YOLOv5 has replaced it by --optimizer",
       "use --optimizer Adam"},
      {"--linear-lr", kIgnored, 0, "the learning rate is linear by default",
       ""},
      {"--entity", kRefused, 1, kNoLogger,
       "read results.csv or the TensorBoard events of the run's folder"},
      {"--upload_dataset", kRefused, 1, "nothing is uploaded", "leave it out"},
      {"--bbox_interval", kRefused, 1, kNoLogger, "leave it out"},
      {"--artifact_alias", kRefused, 1, kNoLogger, "leave it out"},
      {"--bucket", kRefused, 1, "nothing is uploaded",
       "copy the run's folder yourself"},
      {"--ndjson-console", kRefused, 0, "progress is not printed as JSON",
       "read steps.jsonl and events.jsonl of the run's folder"},
      {"--ndjson-file", kRefused, 0, "this is always written", "leave it out"},
      {"--notest", kRefused, 0, kRenamed, "use --noval"},
      {"--save_period", kRefused, 1, kRenamed, "use --save-period N"},
      {"--total-batch-size", kRefused, 1,
       "--batch counts the images of all processes", "use --batch N"},
      {"--logdir", kRefused, 1, kRenamed, "use --project DIR"},
      {"--global_rank", kRefused, 1,
       "ranks are given by the coordinator, not by a launcher's flag",
       "use --processes N, or start headroom under mpirun"},
      {"--log-imgs", kRefused, 1, kNoLogger,
       "look at the pictures in the run's folder"},
      {"--log-artifacts", kRefused, 0, kNoLogger,
       "weights are in the run's folder"},
      // YOLOv5's val has these.
      {"--merge", kRefused, 0, "boxes that overlap are not averaged",
       "leave it out; --iou-thres says when they are one"},
      {"--augment", kRefused, 0, "test-time augmentation" + kNotYet,
       "leave it out; use a larger --img"},
      {"--save-hybrid", kRefused, 0,
       "labels among the predictions make metrics of no meaning",
       "use --save-txt"},
      {"--half", kRefused, 0, "weights are judged in float32",
       "leave it out; in training --precision bf16 is half of it"},
      {"--dnn", kRefused, 0, "OpenCV's networks are not used",
       "give YOLOv5's .pt or .safetensors as --weights"},
  };
  return all;
}

const std::vector<AbsentFlag>& of_detect() {
  static const std::vector<AbsentFlag> all = {
      {"--data", kIgnored, 1, "class names come from the weights", ""},
      {"--view-img", kRefused, 0, "no window is opened",
       "look at the pictures in the results' folder"},
      {"--augment", kRefused, 0, "test-time augmentation" + kNotYet,
       "leave it out; use a larger --img, or --tile"},
      {"--half", kRefused, 0, "half precision" + kNotYet,
       "leave it out; headroom export --half writes a network for others"},
      {"--dnn", kRefused, 0, "OpenCV's networks are not used",
       "give YOLOv5's .pt or .safetensors as --weights"},
      {"--update", kIgnored, 0, "weights are written without an optimizer", ""},
      {"--visualize", kRefused, 0, "feature maps are not drawn",
       "leave it out"},
      {"--output", kRefused, 1, kRenamed, "use --project DIR --name NAME"},
      {"--save-img", kIgnored, 0, "pictures are saved unless --nosave is given",
       ""},
      {"--fourcc", kRefused, 1, "videos are written in one format",
       "leave it out; ffmpeg writes them in others"},
      {"--tfl-int8", kRefused, 0, "TensorFlow's networks are not used",
       "give YOLOv5's .pt or .safetensors as --weights"},
      {"--save-format", kRefused, 1, "corners in text files" + kNotYet,
       "use --save-csv, whose boxes have corners in pixels"},
  };
  return all;
}

const std::vector<AbsentFlag>& of_export() {
  static const std::vector<AbsentFlag> all = {
      {"--device", kIgnored, 1, "the file is the same for every device", ""},
      {"--simplify", kIgnored, 0,
       "onnxruntime and TensorRT simplify a graph when they load it", ""},
      {"--inplace", kIgnored, 0, "the file is the same without it", ""},
      {"--train", kRefused, 0, "networks are exported to be used, not trained",
       "leave it out; headroom train --weights takes the weights themselves"},
      {"--optimize", kRefused, 0, "TorchScript for telephones" + kNotYet,
       "call torch.utils.mobile_optimizer on the .torchscript file"},
      {"--keras", kRefused, 0, kNoTensorFlow,
       "convert the .onnx file with onnx2tf"},
      {"--per-tensor", kRefused, 0, kNoTensorFlow,
       "convert the .onnx file with onnx2tf"},
      {"--opset", kRefused, 1, "the ONNX file has one operator set",
       "leave it out; onnx.version_converter changes the file's"},
      {"--opset-version", kRefused, 1, "the ONNX file has one operator set",
       "leave it out; onnx.version_converter changes the file's"},
      {"--grid", kIgnored, 0, "boxes are decoded unless --raw is given", ""},
      {"--cache", kRefused, 1, "TensorRT engines are not built here",
       "export onnx and give trtexec --timingCacheFile=FILE"},
      {"--mlmodel", kRefused, 0, "CoreML's formats are not written",
       "call coremltools.convert on the .torchscript file"},
      {"--tfl-int8", kRefused, 0, kNoTensorFlow,
       "convert the .onnx file with onnx2tf"},
      {"--verbose", kIgnored, 0, "what is written is always listed", ""},
      {"--workspace", kRefused, 1, "TensorRT engines are not built here",
       "export onnx and give trtexec --memPoolSize=workspace:MIB"},
      {"--agnostic-nms", kRefused, 0, "--nms keeps classes apart",
       "leave it out, or suppress without --nms yourself"},
      {"--topk-all", kRefused, 1, "--nms bounds the boxes of each class",
       "use --topk-per-class N"},
  };
  return all;
}

const std::map<std::string, std::vector<std::string>>& published() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"train",
       {"--weights",
        "--cfg",
        "--data",
        "--hyp",
        "--epochs",
        "--batch-size",
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
        "--evolve_population",
        "--resume_evolve",
        "--bucket",
        "--cache",
        "--image-weights",
        "--device",
        "--multi-scale",
        "--single-cls",
        "--optimizer",
        "--sync-bn",
        "--workers",
        "--project",
        "--name",
        "--exist-ok",
        "--quad",
        "--cos-lr",
        "--label-smoothing",
        "--patience",
        "--freeze",
        "--save-period",
        "--seed",
        "--local_rank",
        "--entity",
        "--upload_dataset",
        "--bbox_interval",
        "--artifact_alias",
        "--ndjson-console",
        "--ndjson-file"}},
      {"val", {"--data",        "--weights",   "--batch-size", "--imgsz",
               "--img",         "--img-size",  "--conf-thres", "--iou-thres",
               "--max-det",     "--task",      "--device",     "--workers",
               "--single-cls",  "--augment",   "--verbose",    "--save-txt",
               "--save-hybrid", "--save-conf", "--save-json",  "--project",
               "--name",        "--exist-ok",  "--half",       "--dnn"}},
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
                  "--vid-stride"}},
      {"export",
       {"--data",       "--weights",      "--imgsz",          "--img",
        "--img-size",   "--batch-size",   "--device",         "--half",
        "--inplace",    "--keras",        "--optimize",       "--int8",
        "--per-tensor", "--dynamic",      "--cache",          "--simplify",
        "--mlmodel",    "--opset",        "--verbose",        "--workspace",
        "--nms",        "--agnostic-nms", "--topk-per-class", "--topk-all",
        "--iou-thres",  "--conf-thres",   "--include"}}};
  return all;
}

// A flag that headroom plan alone takes.
bool is_of_plan(const std::string& spelling) {
  return std::ranges::any_of(command_flags(), [&](const CommandFlag& flag) {
    return flag.commands == std::vector<std::string>{"plan"} &&
           flag.spellings.front() == spelling;
  });
}

}  // namespace

const std::vector<std::string>& published_flags(const std::string& command) {
  static const std::vector<std::string> none;
  const bool is_as_train = command == "plan" || command == "coordinator";
  const auto found = published().find(is_as_train ? "train" : command);
  return found == published().end() ? none : found->second;
}

const std::vector<AbsentFlag>& absent_flags(const std::string& command) {
  static const std::vector<AbsentFlag> none;
  if (command == "detect") return of_detect();
  if (command == "export") return of_export();
  const bool is_run = command == "train" || command == "val" ||
                      command == "plan" || command == "coordinator";
  return is_run ? of_train_and_val() : none;
}

const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling) {
  for (const AbsentFlag& flag : absent_flags(command)) {
    if (flag.spelling == spelling) return &flag;
  }
  return nullptr;
}

std::string answer_unknown_flag(
    const std::string& command, const std::string& spelling,
    const std::vector<std::string>& more_spellings) {
  if (const AbsentFlag* flag = find_absent_flag(command, spelling)) {
    if (flag->answer == AbsentFlag::Answer::kIgnored) {
      return spelling + " changes nothing: " + flag->why;
    }
    throw Error("config", spelling + ": " + flag->why, flag->remedy);
  }
  if (find_flag(spelling) != nullptr) {
    const std::string other = command == "val" ? "train" : "val";
    throw Error("config",
                spelling + " is a flag of headroom " + other +
                    ", not of headroom " + command,
                "leave it out, or set its key with --set (headroom " + other +
                    " --help)");
  }
  if (is_of_plan(spelling)) {
    throw Error(
        "config",
        spelling + " is a flag of headroom plan, not of headroom " + command,
        "ask headroom plan, and leave it out here: a run takes what "
        "--device and --memory-limit give it");
  }
  std::vector<std::string> known = more_spellings;
  for (const Flag& flag : flags()) {
    if (command == "val" ? !flag.in_val : !flag.in_train) continue;
    known.insert(known.end(), flag.spellings.begin(), flag.spellings.end());
  }
  throw Error(
      "config", "unknown flag " + spelling,
      yaml::suggestion(spelling, known,
                       "headroom " + command + " --help lists the flags"));
}

}  // namespace headroom::configs
