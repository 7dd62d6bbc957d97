#include "configs/absent_flags.h"

#include "configs/flags.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

const std::string kNotYet = " is not in this version";

}  // namespace

const std::vector<AbsentFlag>& absent_flags() {
  constexpr auto kRefused = AbsentFlag::Answer::kRefused;
  constexpr auto kIgnored = AbsentFlag::Answer::kIgnored;
  static const std::vector<AbsentFlag> all = {
      // Of YOLOv5's train.
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
      // Of YOLOv5's val.
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

const AbsentFlag* find_absent_flag(const std::string& spelling) {
  for (const AbsentFlag& flag : absent_flags()) {
    if (flag.spelling == spelling) return &flag;
  }
  return nullptr;
}

std::string answer_unknown_flag(
    const std::string& command, const std::string& spelling,
    const std::vector<std::string>& more_spellings) {
  if (const AbsentFlag* flag = find_absent_flag(spelling)) {
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
