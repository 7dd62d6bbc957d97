#include "configs/flags.h"

#include <algorithm>

#include "configs/knobs.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"

namespace headroom::configs {
namespace {

using Values = Flag::Values;

std::vector<Flag> build_flags() {
  constexpr bool kNo = false;
  std::vector<Flag> all = {
      {{"--data"}, {"data"}, Values::kOne, "DATA.YAML", true, true, ""},
      {{"--cfg"}, {"cfg"}, Values::kOne, "MODEL", true, true, ""},
      {{"--weights"}, {"weights"}, Values::kOne, "FILE", true, true, ""},
      {{"--teacher"}, {"teacher"}, Values::kOne, "FILE", true, kNo, ""},
      {{"--hyp"}, {"hyp_file"}, Values::kOne, "HYP.YAML", true, kNo, ""},
      {{"--noautoanchor"}, {"noautoanchor"}, Values::kNone, "", true, kNo, ""},
      {{"--img", "--imgsz", "--img-size"},
       {"image_height", "image_width"},
       Values::kOneOrTwo,
       "HEIGHT [WIDTH]",
       true,
       true,
       ""},
      {{"--batch", "--batch-size"},
       {"global_batch_size"},
       Values::kOne,
       "N",
       true,
       true,
       ""},
      {{"--epochs"}, {"epochs"}, Values::kOne, "N", true, kNo, ""},
      {{"--max-steps"}, {"max_steps"}, Values::kOne, "N", true, kNo, ""},
      {{"--optimizer"}, {"optimizer"}, Values::kOne, "NAME", true, kNo, ""},
      {{"--cos-lr"}, {"cos_lr"}, Values::kNone, "", true, kNo, ""},
      {{"--label-smoothing"},
       {"label_smoothing"},
       Values::kOne,
       "E",
       true,
       kNo,
       ""},
      {{"--single-cls"}, {"single_cls"}, Values::kNone, "", true, true, ""},
      {{"--rect"}, {"rect"}, Values::kNone, "", true, kNo, ""},
      {{"--image-weights"},
       {"image_weights"},
       Values::kNone,
       "",
       true,
       kNo,
       ""},
      {{"--random-crop"}, {"random_crop"}, Values::kNone, "", true, kNo, ""},
      {{"--close-mosaic"},
       {"close_mosaic"},
       Values::kOne,
       "EPOCHS",
       true,
       kNo,
       ""},
      {{"--multi-scale"}, {"multi_scale"}, Values::kNone, "", true, kNo, ""},
      {{"--freeze"}, {"freeze"}, Values::kOne, "ROWS", true, kNo, ""},
      {{"--seed"}, {"seed"}, Values::kOne, "N", true, kNo, ""},
      {{"--precision"},
       {"precision"},
       Values::kOne,
       "fp32|bf16|fp16|fp64",
       true,
       true,
       ""},
      {{"--patience"}, {"patience"}, Values::kOne, "EPOCHS", true, kNo, ""},
      {{"--bn-group"},
       {"batch_norm_group_size"},
       Values::kOne,
       "K",
       true,
       kNo,
       ""},
      {{"--sync-bn"}, {"sync_batch_norm"}, Values::kNone, "", true, kNo, ""},
      {{"--device"}, {"device"}, Values::kOne, "cpu|0|0,1", true, true, ""},
      {{"--tf32"}, {"tf32"}, Values::kNone, "", true, true, ""},
      {{"--deterministic"},
       {"deterministic"},
       Values::kNone,
       "",
       true,
       kNo,
       ""},
      {{"--cuda-graphs"}, {"cuda_graphs"}, Values::kNone, "", true, kNo, ""},
      {{"--processes"}, {"processes"}, Values::kOne, "N", true, true, ""},
      {{"--min-processes"},
       {"min_processes"},
       Values::kOne,
       "N",
       true,
       kNo,
       ""},
      {{"--layout"},
       {"layout"},
       Values::kOne,
       "data=N,pipeline=N,spatial=N",
       true,
       true,
       ""},
      {{"--zero"}, {"zero_stage"}, Values::kOne, "0..3", true, kNo, ""},
      {{"--micro-batch"},
       {"micro_batch_size"},
       Values::kOne,
       "K",
       true,
       kNo,
       ""},
      {{"--activations"},
       {"activations"},
       Values::kOne,
       "auto|keep|lean|recompute|offload",
       true,
       kNo,
       ""},
      {{"--augment-on"},
       {"augment_on"},
       Values::kOne,
       "auto|cpu|device",
       true,
       kNo,
       ""},
      {{"--backend"},
       {"backend"},
       Values::kOne,
       "auto|gloo|nccl|mpi",
       true,
       true,
       ""},
      {{"--threads"}, {"threads"}, Values::kOne, "N", true, true, ""},
      {{"--workers"}, {"loader_threads"}, Values::kOne, "N", true, true, ""},
      {{"--memory-limit"},
       {"memory_limit"},
       Values::kOne,
       "SIZE",
       true,
       kNo,
       ""},
      {{"--inject"}, {"inject"}, Values::kOne, "FAULT", true, kNo, ""},
      {{"--host-memory-limit"},
       {"host_memory_limit"},
       Values::kOne,
       "SIZE",
       true,
       true,
       ""},
      {{"--synthetic-input"},
       {"synthetic_input"},
       Values::kNone,
       "",
       true,
       kNo,
       ""},
      {{"--project"}, {"project"}, Values::kOne, "DIR", true, true, ""},
      {{"--name"}, {"name"}, Values::kOne, "NAME", true, true, ""},
      {{"--exist-ok"}, {"exist_ok"}, Values::kNone, "", true, true, ""},
      {{"--resume"}, {"resume"}, Values::kOptional, "[DIR]", true, kNo, ""},
      {{"--noval"}, {"noval"}, Values::kNone, "", true, kNo, ""},
      {{"--nosave"}, {"nosave"}, Values::kNone, "", true, kNo, ""},
      {{"--noplots"}, {"noplots"}, Values::kNone, "", true, true, ""},
      {{"--save-period"},
       {"save_period"},
       Values::kOne,
       "EPOCHS",
       true,
       kNo,
       ""},
      {{"--memory-trace"},
       {"memory_trace"},
       Values::kOne,
       "FILE",
       true,
       kNo,
       ""},
      {{"--task"}, {"task"}, Values::kOne, "train|val|test", kNo, true, ""},
      {{"--conf-thres"},
       {"confidence_threshold"},
       Values::kOne,
       "X",
       kNo,
       true,
       ""},
      {{"--iou-thres"},
       {"nms_iou_threshold"},
       Values::kOne,
       "X",
       kNo,
       true,
       ""},
      {{"--max-det"}, {"max_detections"}, Values::kOne, "N", kNo, true, ""},
      {{"--save-txt"}, {"save_txt"}, Values::kNone, "", kNo, true, ""},
      {{"--save-conf"}, {"save_conf"}, Values::kNone, "", kNo, true, ""},
      {{"--save-json"}, {"save_json"}, Values::kNone, "", kNo, true, ""},
      {{"--tile"},
       {"tile_height", "tile_width"},
       Values::kOneOrTwo,
       "HEIGHT [WIDTH]",
       kNo,
       true,
       ""},
      {{"--tile-overlap"}, {"tile_overlap"}, Values::kOne, "X", kNo, true, ""},
      {{"--config"},
       {},
       Values::kOne,
       "RUN.YAML",
       true,
       true,
       "A YAML file of knobs (configs/run has examples), read before --hyp and "
       "all other flags."},
      {{"--set"},
       {},
       Values::kOne,
       "KEY=VALUE",
       true,
       true,
       "Set any knob by its key, for example checkpoint_every_steps=3 or "
       "hyp.lr0=0.02. May be repeated."},
  };
  for (Flag& flag : all) {
    if (flag.description.empty()) {
      flag.description = find_knob(flag.keys.front())->description;
    }
  }
  return all;
}

Error bad_flag(const std::string& use, const std::string& what,
               const std::string& remedy) {
  return Error("config", use + ": " + what, remedy);
}

void set_from_set_flag(RunConfig& config, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) {
    throw bad_flag("--set " + word, "there is no '='",
                   "write --set KEY=VALUE, for example --set hyp.lr0=0.02");
  }
  const std::string key = word.substr(0, equals);
  set_value(config, key, word.substr(equals + 1));
  if (key == "processes" && config.processes == 0) {
    throw bad_flag("--set " + word, "a run needs at least one process",
                   "leave it out to have the number chosen");
  }
}

void apply(RunConfig& config, const FlagUse& use) {
  if (use.spelling == "--set") {
    for (const std::string& word : use.values) set_from_set_flag(config, word);
    return;
  }
  const Flag* flag = find_flag(use.spelling);
  HEADROOM_CHECK(flag != nullptr, "no flag " + use.spelling);
  for (size_t i = 0; i < flag->keys.size(); ++i) {
    const Knob& knob = *find_knob(flag->keys[i]);
    std::string text;
    if (flag->values == Values::kNone) {
      text = "true";
    } else if (flag->values == Values::kOptional && use.values.empty()) {
      text = "latest";
    } else {
      HEADROOM_CHECK(!use.values.empty(), use.spelling + " without a value");
      text = use.values[std::min(i, use.values.size() - 1)];
    }
    if (!set_from_text(config, knob, text)) {
      throw bad_flag(use.spelling + " " + text,
                     "'" + text + "' is not " + type_name(knob),
                     "for example " + use.spelling + " " +
                         (default_text(knob).empty() ? flag->value_name
                                                     : default_text(knob)));
    }
  }
  if (use.spelling == "--processes" && config.processes <= 0) {
    throw bad_flag("--processes " + std::to_string(config.processes),
                   "a run needs at least one process",
                   "leave the flag out to have the number chosen");
  }
}

// --config and --hyp have been read by then.
void apply_in_order(RunConfig& config, const std::vector<FlagUse>& uses) {
  for (const FlagUse& use : uses) {
    if (use.spelling != "--config" && use.spelling != "--hyp") {
      apply(config, use);
    }
  }
}

// A run file may name a hyp_file; what it writes under hyp: itself wins.
RunConfig read_run_file(const std::string& file) {
  const std::string text = yaml::read_config_file(file, "config");
  RunConfig config = parse_run_config(text, file);
  if (config.hyp_file.empty()) return config;
  RunConfig from_hyp_file;
  load_hyperparameters(from_hyp_file, config.hyp_file);
  overlay_run_config(from_hyp_file, text, file);
  return from_hyp_file;
}

}  // namespace

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = build_flags();
  return all;
}

const Flag* find_flag(const std::string& spelling) {
  for (const Flag& flag : flags()) {
    if (std::find(flag.spellings.begin(), flag.spellings.end(), spelling) !=
        flag.spellings.end()) {
      return &flag;
    }
  }
  return nullptr;
}

RunConfig run_config_from_flags(const std::string& command,
                                const std::vector<FlagUse>& uses) {
  RunConfig config;
  std::string hyp_file;
  for (const FlagUse& use : uses) {
    HEADROOM_CHECK((use.spelling != "--config" && use.spelling != "--hyp") ||
                       use.values.size() == 1,
                   use.spelling + " without a file");
    if (use.spelling == "--config") config = read_run_file(use.values.front());
    if (use.spelling == "--hyp") hyp_file = use.values.front();
  }
  config.command = command;
  if (!hyp_file.empty()) load_hyperparameters(config, hyp_file);
  apply_in_order(config, uses);
  return config;
}

RunConfig overlay_flags(RunConfig base, const std::vector<FlagUse>& uses) {
  for (const FlagUse& use : uses) {
    if (use.spelling == "--config") {
      throw bad_flag("--config", "a resumed run has its own run.yaml",
                     "give single flags or --set KEY=VALUE instead");
    }
    if (use.spelling == "--hyp") load_hyperparameters(base, use.values.at(0));
  }
  apply_in_order(base, uses);
  return base;
}

}  // namespace headroom::configs
