// RunConfig: every key of a run with its default. Each has a declaration with
// advice, unit, range and flag in configs/run_options.cpp.
//
// Four sources, later ones win: the defaults here, --config run.yaml, YOLOv5's
// --hyp file for the hyper-parameters, then flags and --set key=value in the
// given order. A key has one name everywhere: the member here, the YAML key,
// the --set key; flags keep YOLOv5's spelling.
//
// Workers and the run directory get the same YAML text, so to_yaml and
// parse_run_config are inverse to each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/optimizer_kind.h"
#include "parallel/base/value_range.h"
#include "parallel/plan/backend.h"
#include "parallel/plan/batch_norm_groups.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/network_rates.h"

namespace headroom::configs {

// YOLOv5's hyper-parameters under their published names, so that published
// sets load; the defaults are the set "scratch-low".
struct Hyperparameters {
  double lr0 = 0.01;
  double lrf = 0.01;
  double momentum = 0.937;
  double weight_decay = 0.0005;
  double warmup_epochs = 3.0;
  double warmup_momentum = 0.8;
  double warmup_bias_lr = 0.1;
  double box = 0.05;
  double cls = 0.5;
  std::string cls_pw = "1";  // configs/class_weights.h
  double obj = 1.0;
  double obj_pw = 1.0;
  double iou_t = 0.20;
  double anchor_t = 4.0;
  double anchors = 0;
  double fl_gamma = 0.0;
  // Of heads without anchors. They have names of their own, because YOLOv5's
  // files have a box gain of 0.05, which is no gain for these heads.
  double anchor_free_box = 7.5;
  double anchor_free_cls = 0.5;
  double dfl = 1.5;
  double hsv_h = 0.015;
  double hsv_s = 0.7;
  double hsv_v = 0.4;
  double add_hue = 0;  // 1 adds to the hue, 0 multiplies it
  double degrees = 0.0;
  double translate = 0.1;
  double scale = 0.5;
  double shear = 0.0;
  double perspective = 0.0;
  double flipud = 0.0;
  double fliplr = 0.5;
  double mosaic = 1.0;
  double mixup = 0.0;
  double copy_paste = 0.0;
  double mosaic9 = 0.0;
  double blur = 0.0;
  double median_blur = 0.0;
  double gray = 0.0;
  double clahe = 0.0;
  double distill = 1.0;

  bool operator==(const Hyperparameters&) const = default;
};

// kAuto is replaced when the run starts (coordinator/run/precision_choice.h);
// where it was not replaced, kAuto means float32.
enum class Precision { kAuto, kFp32, kFp64, kBf16, kFp16 };

// --synthetic-input: the steps of an epoch, and the classes.
inline constexpr int64_t kSyntheticStepsPerEpoch = 1000;
inline constexpr int64_t kSyntheticClasses = 80;

// --batch -1: the largest batch that fits (parallel/planner/largest_batch.h).
inline constexpr int64_t kLargestBatch = -1;

// The longest time between two checkpoints within an epoch; each epoch also
// ends with a checkpoint. So a lost machine costs at most the work of this
// time.
inline constexpr int64_t kSecondsBetweenCheckpoints = 60;

// --val-share: the default, and what it means in runs of at least this many
// ranks.
inline constexpr double kAutomaticShare = -1;
inline constexpr int64_t kManyRanks = 16;
inline constexpr double kShareOfManyRanks = 0.2;

struct RunConfig {
  std::string command = "train";

  // Data, model and weights.
  std::string data;
  std::string cfg;
  std::string weights;
  std::string teacher;
  // The teacher's model and digest are read from its file at the first start.
  std::string teacher_model;
  std::string teacher_digest;
  std::string hyp_file;
  Hyperparameters hyp;
  bool noautoanchor = false;
  std::string anchors;  // configs/layers/model_table.h; "" means the model's
  std::string anchors_reason;
  int64_t image_height = 640;
  int64_t image_width = 640;
  int64_t global_batch_size = 16;  // kLargestBatch until resolved
  int64_t epochs = 100;
  int64_t max_steps = 0;
  double hours = 0;               // 0 means no limit
  int64_t ends_at = 0;            // seconds since 1970; 0 means no limit
  std::string recipe = "yolov5";  // configs/recipe.h
  OptimizerKind optimizer = OptimizerKind::kSgd;
  bool cos_lr = false;
  bool short_warmup = false;
  bool lr_of_epoch = false;
  bool carry_accumulation = false;
  double label_smoothing = 0;
  bool single_cls = false;
  bool rect = false;
  bool image_weights = false;
  double fraction = 1;
  bool random_crop = false;
  int64_t close_mosaic = 0;
  bool multi_scale = false;
  int64_t freeze = 0;
  uint64_t seed = 0;
  Precision precision = Precision::kAuto;
  // The first generation checks one step in float16
  // (worker/run/float16_check.h) and continues in float32 if the check fails.
  bool checks_float16 = false;
  int64_t patience = 100;
  std::string best_metric = "fitness";
  int64_t batch_norm_group_size = 0;  // 0 means chosen by the planner
  // The batch-norm groups of a resumed run's plan. If empty,
  // batch_norm_group_size is used.
  std::optional<plan::BatchNormRule> batch_norm_rule;
  // The network's rates once the run has measured them. Not written to YAML.
  std::optional<plan::NetworkRates> network;
  bool sync_batch_norm = false;
  bool skip_non_finite = false;

  // The device and the arithmetic that it uses.
  std::string device = "auto";
  bool tf32 = false;
  bool deterministic = false;
  bool cuda_graphs = false;
  bool share_devices = false;
  int64_t full_mesh_ranks = 64;
  double require_rate = 0;  // GB/s; 0 accepts any rate
  int64_t processes = 0;    // 0 means one per device, 1 on the CPU
  int64_t min_processes = 1;
  int64_t card_failure_steps = 1000;
  int64_t weight_digest_every = 100;  // 0: ranks never compare their weights
  std::optional<plan::ParallelLayout> layout;  // if empty, the planner chooses
  int64_t zero_stage = 0;
  int64_t micro_batch_size = 0;  // 0 means chosen by the planner
  std::string activations = "auto";
  std::string augment_on = "auto";
  std::string augment_program;  // require_augment_program() in flags.h
  plan::Backend backend = plan::Backend::kAuto;
  int64_t threads = 0;  // 0 means the cores divided by the processes
  int64_t loader_threads = 8;
  int64_t memory_limit = 0;  // bytes; 0 means no limit
  bool memory_limit_is_machines = false;
  std::string inject;
  // Bytes. 0 means 1 GiB for the loader, and the free disk for the offload
  // file.
  int64_t host_memory_limit = 0;
  bool synthetic_input = false;
  std::string label_counts;  // "" if unknown
  std::string value_range;   // parallel/base/value_range.h; "" means 8 bits

  // Output.
  std::string project;  // "" means runs/train or runs/val
  std::string name = "exp";
  bool exist_ok = false;
  std::string resume;  // a folder, or "latest"
  bool noval = false;
  bool nosave = false;
  double validation_share = kAutomaticShare;
  bool noplots = false;
  bool noindex = false;
  int64_t save_period = -1;
  int64_t checkpoint_every_steps = 0;  // 0 means at each epoch's end
  int64_t keep_checkpoints = 2;
  std::string memory_trace;
  int64_t memory_trace_steps = 3;

  // Validation.
  std::string task = "val";
  double confidence_threshold = 0.001;
  double nms_iou_threshold = kAutomaticShare;
  bool clip_boxes = true;
  int64_t max_detections = 300;
  bool save_txt = false;
  bool save_conf = false;
  bool save_json = false;
  int64_t tile_height = 0;  // 0 means whole images
  int64_t tile_width = 0;
  double tile_overlap = 0.2;

  bool operator==(const RunConfig&) const = default;
};

// `text` is the content of `file`. Refuses unknown keys, wrong types and tabs
// with file:line:column and the nearest known key.
RunConfig parse_run_config(const std::string& text, const std::string& file);
// Sets the keys in the text; all others keep their values in `config`.
void overlay_run_config(RunConfig& config, const std::string& text,
                        const std::string& file);
std::string to_yaml(const RunConfig& config);

// Applies one --set KEY=VALUE. Throws Error that names the nearest known key.
void set_value(RunConfig& config, const std::string& key,
               const std::string& value);

// Applies a hyp.yaml to config.hyp; refuses unknown keys with their line. A
// file with the key dfl is of models without anchors: its box and cls are
// anchor_free_box and anchor_free_cls, unless it has these, too.
void load_hyperparameters(RunConfig& config, const std::string& file);

// Sets `ends_at` for a run that starts or resumes at `now`.
void begin_hours(RunConfig& config, std::chrono::system_clock::time_point now);

// Checks ranges, choices and fields against each other; throws Error with both
// numbers and the remedy. The planner checks how the batch is split over
// processes (parallel/planner/planner.h).
void check_run_config(const RunConfig& config);
// The checks that depend on whether the run is on cards. An automatic device
// may become a card or the CPU, so call this function again when the device is
// known.
void check_settled_device(const RunConfig& config);

// The share of the time that validations may take in a run of `num_ranks`; 0 if
// every epoch is validated.
double validation_share(const RunConfig& config, int64_t num_ranks);

// The run's range of pixel values; empty for 8 bits. Throws Error (exit 2).
ValueRanges value_ranges_of(const RunConfig& config);

// The run's anchors, width and height in pixels, by level; empty if the model's
// are used. Throws Error if the text is invalid.
std::vector<std::vector<std::pair<double, double>>> anchors_of_run(
    const RunConfig& config);

// Throws Error if there is no data set, or no weights to evaluate. Not called
// for a run that is only planned.
void check_run_sources(const RunConfig& config);

// The place where a run's training samples are rendered from their recipes
// (worker/data/augment/sample_recipe.h): the loader's threads, or a kernel on
// the device. Both give the same bytes.
struct AugmentPlace {
  bool on_device = false;
  std::string reason;
};

// REQUIRES: a checked `config`.
AugmentPlace augment_place(const RunConfig& config);

}  // namespace headroom::configs
