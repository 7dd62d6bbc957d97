// check_run_config: ranges from the table of knobs, then fields against each
// other.
#include <cmath>
#include <cstdint>
#include <string>

#include "configs/fault.h"
#include "configs/knobs.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

[[noreturn]] void refuse_run(const std::string& what,
                             const std::string& remedy) {
  throw Error("config", what, remedy);
}

// 1000000, not 1e+06.
std::string bound_text(double bound) {
  const bool is_whole = bound == std::trunc(bound) && std::abs(bound) < 1e15;
  return is_whole ? std::to_string(static_cast<int64_t>(bound))
                  : yaml::exact_text(bound);
}

void check_ranges(const RunConfig& config) {
  for (const Knob& knob : knobs()) {
    if (is_text(knob)) continue;
    const double value = number_of(config, knob);
    if (knob.key == "global_batch_size" && value == kLargestBatch) continue;
    if (value >= knob.low && value <= knob.high) continue;
    const std::string bound = value < knob.low
                                  ? "at least " + bound_text(knob.low)
                                  : "at most " + bound_text(knob.high);
    refuse_run(shown_name(knob) + " is " + value_text(config, knob) +
                   ", but must be " + bound +
                   (knob.unit.empty() ? "" : " (" + knob.unit + ")"),
               "the default is " + default_text(knob) +
                   (knob.key == "global_batch_size"
                        ? ", and -1 asks for the most that fits"
                        : ""));
  }
}

void check_choices(const RunConfig& config) {
  for (const Knob& knob : knobs()) {
    if (knob.choices.empty()) continue;
    RunConfig copy;
    const std::string value = value_text(config, knob);
    if (set_from_text(copy, knob, value)) continue;
    refuse_run(shown_name(knob) + " is '" + value + "'",
               "use " + type_name(knob));
  }
}

bool may_be_float32(const RunConfig& config) {
  return config.precision == Precision::kAuto ||
         config.precision == Precision::kFp32;
}

// Averaged weights are judged in float32 whatever they were trained in.
void check_precision(const RunConfig& config) {
  if (config.command != "val" || (config.precision != Precision::kBf16 &&
                                  config.precision != Precision::kFp16)) {
    return;
  }
  refuse_run("headroom val computes in float32 or float64",
             "use --precision fp32 or fp64");
}

// Whoever starts the run settles it (parallel/planner/largest_batch.h).
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
        "leave one of the two out");
  }
}

void check_graphs(const RunConfig& config, bool is_cpu) {
  const char* const reason = is_cpu               ? "--device is cpu"
                             : config.multi_scale ? "--multi-scale changes it"
                             : config.rect        ? "--rect changes it"
                             : !config.teacher.empty()
                                 ? "--teacher has two networks"
                                 : nullptr;
  if (reason == nullptr) return;
  refuse_run(std::string("--cuda-graphs captures one network's steps of one "
                         "shape on a card, but ") +
                 reason,
             "leave one of the two out");
}

void check_augment_place(const RunConfig& config, bool is_cpu) {
  const std::string& place = config.augment_on;
  if (place != "auto" && place != "cpu" && place != "device") {
    refuse_run("--augment-on " + place + " is no place to render samples",
               "use auto, cpu or device");
  }
  if (place == "device" && (is_cpu || config.synthetic_input)) {
    refuse_run(
        std::string("--augment-on device renders samples on a card, but ") +
            (is_cpu ? "--device is cpu"
                    : "--synthetic-input has none to render"),
        is_cpu ? "give --device 0, or leave it out" : "leave it out");
  }
}

}  // namespace

void check_settled_device(const RunConfig& config) {
  // An automatic device is checked again once it is settled.
  const bool is_cpu =
      !computes_on_cards(config.device) && !is_automatic_device(config.device);
  if (config.tf32 && (is_cpu || !may_be_float32(config))) {
    refuse_run(std::string("--tf32 rounds a card's products of float32, but ") +
                   (is_cpu ? std::string("--device is cpu")
                           : "--precision is " +
                                 value_text(config, *find_knob("precision"))),
               "leave it out");
  }
  if (config.cuda_graphs) check_graphs(config, is_cpu);
  check_augment_place(config, is_cpu);
}

namespace {

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

void check_files(const RunConfig& config) {
  if (config.save_conf && !config.save_txt) {
    refuse_run("--save-conf adds confidences to files that are not written",
               "add --save-txt, or leave it out");
  }
  if (config.close_mosaic > 0 && config.rect) {
    refuse_run(cat("--close-mosaic ", config.close_mosaic,
                   " ends mosaics, but --rect has none"),
               "leave one of the two out");
  }
}

void check_image_weights(const RunConfig& config) {
  if (!config.image_weights) return;
  if (config.rect) {
    refuse_run(
        "--image-weights draws images in any order, but --rect has batches "
        "of like shape",
        "leave one of the two out");
  }
  if (config.synthetic_input) {
    refuse_run(
        "--image-weights weighs images by their labels, but "
        "--synthetic-input has no data set",
        "leave one of the two out");
  }
}

void check_random_crop(const RunConfig& config) {
  if (!config.random_crop) return;
  if (config.rect) {
    refuse_run(
        "--random-crop makes samples of one size, but --rect has a "
        "shape for each batch",
        "leave one of the two out");
  }
  if (config.synthetic_input) {
    refuse_run(
        "--random-crop is about large images, and those of "
        "--synthetic-input are as large as the network's",
        "leave one of the two out");
  }
}

// A validation in tiles is one process's work per image, on the CPU.
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

void check_scales(const RunConfig& config) {
  if (!config.multi_scale) return;
  const std::string what = "--multi-scale gives each batch a size of its own, ";
  if (config.rect) {
    refuse_run(what + "and --rect one of its images' shape",
               "leave one of the two out");
  }
  if (config.synthetic_input) {
    refuse_run(what + "but the images of --synthetic-input have one",
               "leave one of the two out");
  }
}

void check_name(const RunConfig& config) {
  if (config.name.empty() || config.name == "." || config.name == ".." ||
      config.name.find('/') != std::string::npos) {
    refuse_run("--name '" + config.name + "' is not the name of a folder",
               "give one word; --project names the folder above it");
  }
  // Quoted nowhere: a terminal would obey it.
  for (size_t i = 0; i < config.name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(config.name[i]);
    if (byte >= 0x20 && byte != 0x7f) continue;
    refuse_run(
        cat("--name has a control character, byte ", byte, " at place ", i + 1),
        "give one word of letters and digits");
  }
}

}  // namespace

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
  check_ranges(config);
  check_choices(config);
  check_precision(config);
  check_settled_device(config);
  check_anchors(config);
  value_ranges_of(config);
  check_name(config);
  check_files(config);
  check_tiles(config);
  check_image_weights(config);
  check_random_crop(config);
  check_scales(config);
}

void check_run_sources(const RunConfig& config) {
  if (!config.resume.empty()) return;  // the saved run names its sources
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
