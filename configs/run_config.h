// RunConfig: every knob of a run, with its default and unit.
//
// Four sources, later ones win: the defaults here, --config run.yaml, YOLOv5's
// --hyp file for the hyper-parameters, then flags and --set key=value in the
// order they are given. A knob has one name everywhere: the member here, the
// YAML key, the --set key; flags keep YOLOv5's spelling (configs/README.md).
//
// The same YAML text travels to the workers and into the run directory, so
// to_yaml and parse_run_config are inverse to each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/layout.h"

namespace headroom::configs {

// YOLOv5's hyper-parameters under their published names, so that published
// sets load; the defaults are the set "scratch-low".
struct Hyperparameters {
  double lr0 = 0.01;        // initial learning rate
  double lrf = 0.01;        // final rate = lr0 * lrf
  double momentum = 0.937;  // SGD momentum (Adam: beta1)
  double weight_decay = 0.0005;
  double warmup_epochs = 3.0;  // at least 100 steps; 0: no warm-up at all
  double warmup_momentum = 0.8;
  double warmup_bias_lr = 0.1;
  double box = 0.05;  // gains of the three loss terms
  double cls = 0.5;
  double cls_pw = 1.0;  // weight of positives in the class term
  double obj = 1.0;
  double obj_pw = 1.0;
  double iou_t = 0.20;    // unused, as in YOLOv5
  double anchor_t = 4.0;  // largest ratio of box to anchor
  double anchors = 0;     // per level, to be found; 0: the model file's
  double fl_gamma = 0.0;  // focal loss
  double hsv_h = 0.015;   // fractions
  double hsv_s = 0.7;
  double hsv_v = 0.4;
  double degrees = 0.0;      // +-
  double translate = 0.1;    // +- fraction
  double scale = 0.5;        // +- gain
  double shear = 0.0;        // +- degrees
  double perspective = 0.0;  // 0 to 0.001
  double flipud = 0.0;       // probabilities
  double fliplr = 0.5;
  double mosaic = 1.0;
  double mixup = 0.0;
  double copy_paste = 0.0;
  double mosaic9 = 0.0;  // that a mosaic has nine images
  double blur = 0.0;     // probabilities of changes to pixels alone
  double median_blur = 0.0;
  double gray = 0.0;
  double clahe = 0.0;
  double distill = 1.0;  // gain of what a teacher says; with one only

  bool operator==(const Hyperparameters&) const = default;
};

enum class Precision { kFp32, kFp64, kBf16, kFp16 };

// --batch: the largest that fits (parallel/planner/largest_batch.h).
inline constexpr int64_t kLargestBatch = -1;

struct RunConfig {
  std::string command = "train";  // train or val

  // What to train on and with.
  std::string data;            // data.yaml
  std::string cfg;             // model file or shipped name
  std::string weights;         // safetensors to start from; "" from scratch
  std::string teacher;         // --teacher: weights to learn from; "" none
  std::string teacher_model;   // what they are, and their XXH3-128: read from
  std::string teacher_digest;  //   the file when the run is first started
  std::string hyp_file;        // --hyp
  Hyperparameters hyp;
  bool noautoanchor = false;  // the model's anchors, whatever the boxes are
  std::string
      anchors;  // pixels (configs/layers/anchor_list.h); "": the model's
  std::string anchors_reason;  // where they come from, in words; "": nobody
                               //   judged them
  int64_t image_height = 640;  // --img S or --img HEIGHT WIDTH; rounded up
  int64_t image_width = 640;   //   to the model's largest stride
  // --batch: images per step, over all ranks; kLargestBatch until that is
  // known.
  int64_t global_batch_size = 16;
  int64_t epochs = 100;
  int64_t max_steps = 0;          // committed steps to end at; 0: no limit
  std::string optimizer = "SGD";  // SGD, Adam, AdamW
  bool cos_lr = false;            // cosine instead of linear
  double label_smoothing = 0;
  bool single_cls = false;     // all classes become one
  bool rect = false;           // rectangular batches, no mosaic
  bool image_weights = false;  // images drawn by their classes' weights
  bool random_crop = false;    // windows of larger images, not shrunk ones
  int64_t close_mosaic = 0;    // the last epochs without mosaics
  bool multi_scale = false;    // each batch of another size (multi_scale.h)
  int64_t freeze = 0;          // layers [0, freeze) do not learn
  uint64_t seed = 0;
  Precision precision = Precision::kFp32;
  int64_t patience = 100;             // epochs without progress; 0: no limit
  int64_t batch_norm_group_size = 0;  // --bn-group; 0: chosen
  bool sync_batch_norm = false;       // --sync-bn: one group per global batch
  bool skip_non_finite = false;  // skip a step whose gradient is not finite

  // Where and how it runs.
  std::string device;          // "", "cpu" or CUDA indices
  bool tf32 = false;           // --tf32: in a card's float32 products
  bool deterministic = false;  // only algorithms of the same bits
  bool cuda_graphs = false;    // --cuda-graphs: of a micro-batch's layers
  bool share_devices = false;  // by several processes
  int64_t processes = 0;       // --processes; 0: one per device, 1 on CPU
  int64_t min_processes = 1;   // --min-processes
  // How many ranks each axis has; none: the planner chooses.
  std::optional<plan::ParallelLayout> layout;
  int64_t zero_stage = 0;            // --zero 0..3: what the data axis shares
  int64_t micro_batch_size = 0;      // --micro-batch; 0: chosen
  std::string activations = "auto";  // --activations: what backward keeps
  std::string augment_on = "auto";   // where samples are rendered: cpu, device
  std::string backend = "auto";      // auto, gloo, nccl, mpi
  int64_t threads = 0;               // compute threads per process; 0: cores /
                                     //   processes
  int64_t loader_threads = 8;        // --workers: per process
  int64_t memory_limit = 0;          // --memory-limit, bytes of tensors per
                                     //   process; 0: no limit
  std::string inject;                // --inject: faults for tests
  int64_t host_memory_limit = 0;  // --host-memory-limit, bytes per process of
                                  //   the loader's queues (0: 1 GiB) and of the
                                  //   offload file (0: the disk's room)
  bool synthetic_input = false;   // --synthetic-input: fixed random images
  std::string label_counts;       // training images by boxes, for predicted
                                  //   bytes; "": not known

  // What is written.
  std::string project;  // "": runs/train or runs/val
  std::string name = "exp";
  bool exist_ok = false;
  std::string resume;                  // --resume [DIR]; "latest": newest run
  bool noval = false;                  // validate the last epoch only
  bool nosave = false;                 // keep the last checkpoint only
  bool noplots = false;                // draw no pictures
  int64_t save_period = -1;            // also keep weights every N epochs
  int64_t checkpoint_every_steps = 0;  // 0: at each epoch's end
  int64_t keep_checkpoints = 2;
  std::string memory_trace;        // --memory-trace FILE; "": none
  int64_t memory_trace_steps = 3;  // that it records, from the start

  // Validation.
  std::string task = "val";  // split that `val` uses: train, val, test
  double confidence_threshold = 0.001;  // --conf-thres
  double nms_iou_threshold = 0.6;       // --iou-thres
  int64_t max_detections = 300;         // --max-det
  bool save_txt = false;                // what is found, as files of val
  bool save_conf = false;
  bool save_json = false;
  int64_t tile_height = 0;    // --tile S or --tile HEIGHT WIDTH, of `val`; 0:
  int64_t tile_width = 0;     //   images as a whole
  double tile_overlap = 0.2;  // of a tile's side

  bool operator==(const RunConfig&) const = default;
};

// `text` is the content of `file`; unknown keys, wrong types and tabs are
// refused with file:line:column and the nearest known key.
RunConfig parse_run_config(const std::string& text, const std::string& file);
// The same, over what `config` holds: keys that the text has not stay.
void overlay_run_config(RunConfig& config, const std::string& text,
                        const std::string& file);
std::string to_yaml(const RunConfig& config);

// One --set KEY=VALUE. Throws Error naming the nearest known key.
void set_value(RunConfig& config, const std::string& key,
               const std::string& value);

// Overlays a hyp.yaml on config.hyp; every key is known or refused by line.
void load_hyperparameters(RunConfig& config, const std::string& file);

// Checks ranges, choices and fields against each other; throws Error with both
// numbers and the remedy. How the batch is split over processes is the
// planner's to judge (parallel/planner/planner.h).
void check_run_config(const RunConfig& config);

// Is there something to train on or to judge? Throws Error that says what to
// give. Not asked of a run that is only planned.
void check_run_sources(const RunConfig& config);

// Where a run's training samples are rendered from their recipes
// (worker/data/augment/sample_recipe.h): by the loader's threads, or by a
// kernel on the device. The bytes are the same.
struct AugmentPlace {
  bool on_device = false;
  std::string reason;
};

// REQUIRES: a checked `config`.
AugmentPlace augment_place(const RunConfig& config);

}  // namespace headroom::configs
