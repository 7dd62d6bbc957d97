// check_run_config: checks the ranges and choices that the options declare,
// then fields against each other.
#include <cmath>
#include <cstdint>
#include <string>

#include "configs/class_weights.h"
#include "configs/fault.h"
#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "configs/recipe.h"
#include "configs/run_config.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

const std::string kOneOfTwo = "leave one of the two out";

[[noreturn]] void refuse_run(const std::string& what,
                             const std::string& remedy) {
  throw Error("config", what, remedy);
}

// A bound as text: 1000000, not 1e+06.
std::string bound_text(double bound) {
  const bool is_whole = bound == std::trunc(bound) && std::abs(bound) < 1e15;
  return is_whole ? std::to_string(static_cast<int64_t>(bound))
                  : yaml::exact_text(bound);
}

void check_range(const RunConfig& config, const Option& option) {
  const double value = number_of(config, option);
  const bool is_batch = option.key == "global_batch_size";
  if (option.range.contains(value) || (is_batch && value == kLargestBatch)) {
    return;
  }
  const std::string bound = value < option.range.low
                                ? "at least " + bound_text(option.range.low)
                                : "at most " + bound_text(option.range.high);
  refuse_run(shown_name(option) + " is " + value_text(config, option) +
                 ", but must be " + bound +
                 (option.unit.empty() ? "" : " (" + option.unit + ")"),
             "the default is " + default_text(option) +
                 (is_batch ? ", and -1 asks for the most that fits" : ""));
}

void check_choice(const RunConfig& config, const Option& option) {
  RunConfig copy;
  const std::string value = value_text(config, option);
  if (set_from_text(copy, option, value)) return;
  refuse_run(shown_name(option) + " is '" + value + "'",
             "use " + type_name(option));
}

bool may_be_float32(const RunConfig& config) {
  return config.precision == Precision::kAuto ||
         config.precision == Precision::kFp32;
}

// Averaged weights are evaluated in float32, whatever the precision in
// training.
void check_precision(const RunConfig& config) {
  if (config.command == "val" && (config.precision == Precision::kBf16 ||
                                  config.precision == Precision::kFp16)) {
    refuse_run("headroom val computes in float32 or float64",
               "use --precision fp32 or fp64");
  }
}

// The program that starts the run replaces -1
// (parallel/planner/largest_batch.h).
void check_largest_batch(const RunConfig& config) {
  if (config.global_batch_size != kLargestBatch) return;
  const std::string asks = "--batch -1 asks for the largest batch that fits";
  if (config.command != "train") {
    refuse_run(asks + ", which is for training",
               "give the number of images, for example --batch 16");
  }
  if (config.memory_limit == 0) {
    refuse_run(asks + ", but nothing says in what",
               "give --memory-limit, for example --memory-limit 8GiB");
  }
  if (config.micro_batch_size > 0) {
    refuse_run(
        cat(asks, " in one piece, but --micro-batch ", config.micro_batch_size,
            " cuts it, and then any batch fits"),
        kOneOfTwo);
  }
}

void check_graphs(const RunConfig& config, bool is_cpu) {
  std::string reason;
  if (!config.teacher.empty()) reason = "--teacher has two networks";
  if (config.rect) reason = "--rect changes it";
  if (config.multi_scale) reason = "--multi-scale changes it";
  if (is_cpu) reason = "--device is cpu";
  if (!config.cuda_graphs || reason.empty()) return;
  refuse_run(
      "--cuda-graphs captures one network's steps of one shape on a card, "
      "but " +
          reason,
      kOneOfTwo);
}

void check_augment_place(const RunConfig& config, bool is_cpu) {
  const std::string& place = config.augment_on;
  if (place != "auto" && place != "cpu" && place != "device") {
    refuse_run("--augment-on " + place + " is no place to render samples",
               "use auto, cpu or device");
  }
  const std::string asks =
      "--augment-on device renders samples on a card, but ";
  if (place == "device" && is_cpu) {
    refuse_run(asks + "--device is cpu", "give --device 0, or leave it out");
  }
  if (place == "device" && config.synthetic_input) {
    refuse_run(asks + "--synthetic-input has none to render", "leave it out");
  }
  if (place == "device" && !config.augment_program.empty()) {
    refuse_run(asks + "--augment-program gets them on the host", kOneOfTwo);
  }
}

void check_tf32(const RunConfig& config, bool is_cpu) {
  const std::string rounds = "--tf32 rounds a card's products of float32, but ";
  if (config.tf32 && is_cpu) {
    refuse_run(rounds + "--device is cpu", "leave it out");
  }
  if (config.tf32 && !may_be_float32(config)) {
    refuse_run(
        rounds + "--precision is " + value_text(config, *find_key("precision")),
        "leave it out");
  }
}

void check_anchors(const RunConfig& config) {
  anchors_of_run(config);
  if (config.hyp.anchors == 0 || !config.anchors.empty()) return;
  const std::string asks = "hyp.anchors is " +
                           yaml::exact_text(config.hyp.anchors) +
                           " and asks for anchors found from the boxes, but ";
  if (config.noautoanchor) {
    refuse_run(asks + "--noautoanchor keeps the model's",
               "leave it out, or add --set hyp.anchors=0");
  }
  if (config.synthetic_input) {
    refuse_run(asks + "--synthetic-input has no data set",
               "add --set hyp.anchors=0");
  }
}

// Refuses two settings that exclude each other. `is_so`: both are given.
void check_pairs(const RunConfig& config) {
  // Values that came with a recipe hold where they can.
  const bool was_chosen = config.recipe == kYolov5Recipe;
  const struct {
    bool is_so;
    std::string what;
  } pairs[] = {
      {was_chosen && config.close_mosaic > 0 && config.rect,
       cat("--close-mosaic ", config.close_mosaic,
           " ends mosaics, but --rect has none")},
      {config.image_weights && config.rect,
       "--image-weights draws images in any order, but --rect has batches of "
       "like shape"},
      {config.image_weights && config.synthetic_input,
       "--image-weights weighs images by their labels, but --synthetic-input "
       "has no data set"},
      {config.image_weights && config.validation_share > 0,
       "--image-weights draws an epoch's images by the validation before it, "
       "but --val-share leaves validations out"},
      {config.fraction < 1 && config.synthetic_input,
       "--fraction takes a part of the training images, but "
       "--synthetic-input has no data set"},
      {was_chosen && config.best_metric != "fitness" && config.synthetic_input,
       "--best-metric is about the validation, but --synthetic-input has "
       "none"},
      {!config.augment_program.empty() && config.synthetic_input,
       "--augment-program changes samples of a data set, but "
       "--synthetic-input has none"},
      {config.random_crop && config.rect,
       "--random-crop makes samples of one size, but --rect has a shape for "
       "each batch"},
      {config.random_crop && config.synthetic_input,
       "--random-crop is about large images, and those of --synthetic-input "
       "are as large as the network's"},
      {config.multi_scale && config.rect,
       "--multi-scale gives each batch a size of its own, and --rect one of "
       "its images' shape"},
      {config.multi_scale && config.synthetic_input,
       "--multi-scale gives each batch a size of its own, but the images of "
       "--synthetic-input have one"}};
  for (const auto& pair : pairs) {
    if (pair.is_so) refuse_run(pair.what, kOneOfTwo);
  }
  if (config.save_conf && !config.save_txt) {
    refuse_run("--save-conf adds confidences to files that are not written",
               "add --save-txt, or leave it out");
  }
}

// A validation in tiles runs on the CPU in one process per image.
void check_tiles(const RunConfig& config) {
  if (config.tile_height == 0 && config.tile_width == 0) {
    if (config.tile_overlap == RunConfig().tile_overlap) return;
    refuse_run("--tile-overlap " + yaml::exact_text(config.tile_overlap) +
                   " is about tiles, and there are none",
               "add --tile PIXELS, or leave it out");
  }
  const std::string tile =
      cat("--tile ", config.tile_height, " ", config.tile_width);
  if (config.command != "val") {
    refuse_run(tile + " is for headroom val and headroom detect",
               "to train on tiles, cut them once: headroom tile");
  }
  if (config.tile_height == 0 || config.tile_width == 0) {
    refuse_run(tile + " has a side of 0 pixels",
               "give both sides, for example --tile 640");
  }
  if (!config.clip_boxes) {
    refuse_run(tile + " joins boxes that are cut at the image's edge",
               "leave clip_boxes out");
  }
  if (!may_be_float32(config)) {
    refuse_run(tile + " computes in float32, as headroom detect does",
               "leave --precision out");
  }
  if (computes_on_cards(config.device)) {
    refuse_run(
        tile + " looks at tiles on the CPU, but --device is " + config.device,
        "use --device cpu, or leave --tile out");
  }
}

void check_name(const RunConfig& config) {
  const std::string& name = config.name;
  if (name.empty() || name == "." || name == ".." ||
      name.find('/') != std::string::npos) {
    refuse_run("--name '" + name + "' is not the name of a folder",
               "give one word; --project names the folder above it");
  }
  // Do not print the name: a terminal would execute its control characters.
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte >= 0x20 && byte != 0x7f) continue;
    refuse_run(
        cat("--name has a control character, byte ", byte, " at place ", i + 1),
        "give one word of letters and digits");
  }
}

}  // namespace

void check_settled_device(const RunConfig& config) {
  // An automatic device is checked again when it is known.
  const bool is_cpu =
      !computes_on_cards(config.device) && !is_automatic_device(config.device);
  check_tf32(config, is_cpu);
  check_graphs(config, is_cpu);
  check_augment_place(config, is_cpu);
}

layers::AnchorList anchors_of_run(const RunConfig& config) {
  auto anchors = layers::parse_anchor_list(config.anchors);
  if (!anchors) {
    refuse_run("anchors is '" + config.anchors +
                   "', which is no list of width,height in pixels, the same "
                   "number for each level",
               "write them as '10,13 16,30 33,23; 30,61 62,45 59,119; ...'");
  }
  return *std::move(anchors);
}

double validation_share(const RunConfig& config, int64_t num_ranks) {
  // The next epoch's images depend on a validation of each epoch.
  if (config.image_weights) return 0;
  if (config.validation_share >= 0) return config.validation_share;
  return num_ranks >= kManyRanks ? kShareOfManyRanks : 0;
}

ValueRanges value_ranges_of(const RunConfig& config) {
  auto ranges = parse_value_ranges(config.value_range);
  if (!ranges) {
    refuse_run("value_range is '" + config.value_range +
                   "', which is no low,high with low below high, one pair or "
                   "one for each band",
               "write it as '0,4095', or range: [0, 4095] into data.yaml");
  }
  return *std::move(ranges);
}

void check_run_config(const RunConfig& config) {
  parse_faults(config.inject);
  check_largest_batch(config);
  for (const Option& option : run_options()) {
    if (!is_text(option)) check_range(config, option);
  }
  for (const Option& option : run_options()) {
    if (!option.choices.empty()) check_choice(config, option);
  }
  check_precision(config);
  check_settled_device(config);
  check_anchors(config);
  value_ranges_of(config);
  class_weights_of_run(config);
  check_name(config);
  check_tiles(config);
  check_pairs(config);
}

void check_run_sources(const RunConfig& config) {
  if (!config.resume.empty()) return;  // run.yaml names data and weights
  if (config.data.empty() && !config.synthetic_input) {
    refuse_run("there is no data set",
               "give --data DATA.YAML (configs/data/own_images.yaml explains "
               "its lines)");
  }
  if (config.command == "val" && config.weights.empty()) {
    refuse_run("headroom val has no weights to judge",
               "give --weights FILE, for example "
               "runs/train/exp/weights/best.safetensors");
  }
}

}  // namespace headroom::configs
