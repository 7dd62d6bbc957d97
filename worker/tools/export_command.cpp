// headroom export: writes weights as ONNX, TorchScript, safetensors or .pt
// (worker/export).
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/image.h"
#include "worker/detect/detector.h"
#include "worker/export/export_weights.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/run_data.h"
#include "worker/tools/tool_command.h"
#include "worker/validation/validate.h"

namespace headroom::tools {
namespace {

// Returns a function that passes on `count` training images, evenly spaced over
// the split and letterboxed to the network's size as in validation. Sets
// `num_used` to the number of these images.
exporter::CalibrationImages calibration_images(
    const validation::ImagesToScore& images, int64_t count, int64_t* num_used) {
  configs::RunConfig config = validation::val_config(images);
  config.task = "train";
  const step::RunData inputs = step::read_data(config);
  const auto split =
      std::make_shared<const labels::Dataset>(*inputs.validation);
  codecs::ImageLimits limits;
  limits.bands = layers::picture_channels(inputs.table.input_channels);
  limits.ranges = step::value_ranges(config);
  const int64_t all = split->size();
  *num_used = std::min(count, all);
  return [split, all, used = *num_used, height = images.height,
          width = images.width, limits](int64_t stride, const auto& hand_over) {
    ToolProgress progress;
    for (int64_t i = 0; i < used; ++i) {
      progress.step("calibration", used);
      const codecs::ImageResult image =
          codecs::decode_image(split->path(i * all / used), limits);
      if (!image.ok()) continue;
      const auto input = detect::network_image(image.pixels, height, width,
                                               stride, detect::Resample::kArea);
      if (input) hand_over(input->images);
    }
  };
}

void score_both(model::LayerGraph& model,
                const exporter::HeadsOfImages& in_8_bits,
                const validation::ImagesToScore& images) {
  const auto score = [&](const char* what, const validation::HeadsOf& heads) {
    ToolProgress progress;
    validation::ImagesToScore counted = images;
    counted.image_done = [&](int64_t all) { progress.step(what, all); };
    return validation::describe(
        validation::score_network(model, counted, heads));
  };
  std::printf("float32: %s\n", score("float32", nullptr).c_str());
  std::fflush(stdout);
  const auto heads = [&in_8_bits](const loader::Batch& batch) {
    return in_8_bits(step::network_input(batch.images, at::kFloat));
  };
  std::printf("int8:    %s, simulated\n", score("int8", heads).c_str());
  std::fflush(stdout);
}

}  // namespace

int export_command(int argc, char** argv) {
  exporter::ExportRequest request;
  std::string image_size, include, data;
  int64_t num_images = 0;
  int threads = 0;
  bool no_val = false;
  parse_arguments({{"--weights", &request.weights},
                   {"--include", &include},
                   {"--cfg", &request.cfg},
                   {"--output", &request.output},
                   {"--img", &image_size},
                   {"--batch", &request.batch},
                   {"--dynamic", &request.dynamic},
                   {"--half", &request.half},
                   {"--int8", &request.int8},
                   {"--data", &data},
                   {"--calibration-images", &num_images},
                   {"--noval", &no_val},
                   {"--threads", &threads},
                   {"--raw", &request.raw},
                   {"--nms", &request.nms},
                   {"--conf-thres", &request.confidence_threshold},
                   {"--iou-thres", &request.iou_threshold},
                   {"--topk-per-class", &request.most_per_class}},
                  argc, argv);
  std::ranges::replace(include, ',', ' ');
  std::istringstream formats(include);
  for (std::string format; formats >> format;) {
    request.include.push_back(format);
  }
  if (!request.int8 && (!data.empty() || no_val)) {
    throw Error("export", "--data and --noval are for --int8",
                "leave them out, or give --int8");
  }
  exporter::settle_formats(request);
  exporter::check_export(request);  // refuse before the data set is read
  const bool fixes_size = request.int8 || !request.dynamic;
  const PixelSize size = network_size(image_size, request.weights, fixes_size);
  request.height = size.height;
  request.width = size.width;
  if (threads > 0) at::set_num_threads(threads);
  if (request.int8 && !data.empty()) {
    const validation::ImagesToScore images = {.data = data,
                                              .weights = request.weights,
                                              .cfg = request.cfg,
                                              .height = request.height,
                                              .width = request.width};
    int64_t num_used = 0;
    request.calibration_images =
        calibration_images(images, num_images, &num_used);
    std::printf("calibration: %s\n",
                counted(num_used, "training image").c_str());
    if (!no_val) {
      request.after_int8 = [images](model::LayerGraph& model,
                                    const exporter::HeadsOfImages& in_8_bits) {
        score_both(model, in_8_bits, images);
      };
    }
  }
  for (const std::string& line : exporter::export_weights(request)) {
    std::puts(line.c_str());
  }
  return 0;
}

}  // namespace headroom::tools
