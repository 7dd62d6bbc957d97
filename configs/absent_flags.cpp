#include "configs/absent_flags.h"

#include "configs/flags.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

const std::string kNotYet = " is not in this version";

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
      {"--evolve", kRefused, 1,
       "the genetic search of hyper-parameters needs hundreds of whole runs",
       "use a published set, --hyp scratch-low or scratch-high"},
      {"--cache", kRefused, 1, "caching images" + kNotYet,
       "leave it out; --workers N reads ahead with N threads"},
      {"--cache-images", kRefused, 1, "caching images" + kNotYet,
       "leave it out; --workers N reads ahead with N threads"},
      {"--quad", kRefused, 0, "the loader of four images in one" + kNotYet,
       "leave it out; use a larger --img"},
      {"--adam", kRefused, 0, "YOLOv5 has replaced it by --optimizer",
       "use --optimizer Adam"},
      {"--linear-lr", kIgnored, 0, "the learning rate is linear by default",
       ""},
      {"--entity", kRefused, 1, "no online logger is part of Headroom",
       "read results.csv or the TensorBoard events of the run's folder"},
      {"--upload_dataset", kRefused, 1, "nothing is uploaded", "leave it out"},
      {"--bbox_interval", kRefused, 1, "no online logger is part of Headroom",
       "leave it out"},
      {"--artifact_alias", kRefused, 1, "no online logger is part of Headroom",
       "leave it out"},
      {"--bucket", kRefused, 1, "nothing is uploaded",
       "copy the run's folder yourself"},
      {"--ndjson-console", kRefused, 0, "progress is not printed as JSON",
       "read steps.jsonl and events.jsonl of the run's folder"},
      {"--ndjson-file", kRefused, 0, "this is always written", "leave it out"},
      // YOLOv5's val has these.
      {"--augment", kRefused, 0, "test-time augmentation" + kNotYet,
       "leave it out; use a larger --img"},
      {"--save-hybrid", kRefused, 0,
       "labels among the predictions make metrics of no meaning",
       "use --save-txt"},
      {"--half", kRefused, 0, "half precision" + kNotYet,
       "use --precision bf16 in training"},
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
      {"--keras", kRefused, 0, "TensorFlow's formats are not written",
       "convert the .onnx file with onnx2tf"},
      {"--per-tensor", kRefused, 0, "TensorFlow's formats are not written",
       "convert the .onnx file with onnx2tf"},
      {"--opset", kRefused, 1, "the ONNX file has one operator set",
       "leave it out; onnx.version_converter changes the file's"},
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

}  // namespace

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
