// headroom detect: boxes in images, by a file of weights (worker/detect).
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "configs/row_cost.h"
#include "parallel/base/check.h"
#include "worker/data/image.h"
#include "worker/data/image_bands.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/detect/image_sources.h"
#include "worker/image_size_flag.h"
#include "worker/model/open_weights.h"
#include "worker/stop_signals.h"
#include "worker/tool_arguments.h"
#include "worker/tool_command.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

struct DetectRequest {
  std::string weights, cfg, source, output;
  std::string image_size = "640", tile_size, classes;
  double overlap = 0.2;
  int threads = 1;
  NmsOptions nms{.confidence_threshold = 0.25,
                 .iou_threshold = 0.45,
                 .max_detections = 1000,
                 .multi_label = false,
                 .agnostic = false,
                 .classes = {},
                 .max_candidates = 30000};
  FolderOptions folder;
};

std::vector<int64_t> read_classes(const std::string& text, int64_t classes) {
  std::istringstream words(text);
  std::vector<int64_t> wanted;
  for (std::string word; words >> word;) {
    const bool is_number =
        word.size() < 10 &&
        word.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || std::stoll(word) >= classes) {
      throw Error("detect",
                  "--classes " + word +
                      " is no class of these weights, which "
                      "have 0 to " +
                      std::to_string(classes - 1),
                  "give numbers, for example --classes 0 2");
    }
    wanted.push_back(std::stoll(word));
  }
  return wanted;
}

DetectorOptions detector_options(const DetectRequest& request,
                                 const LayerGraph& model) {
  DetectorOptions options;
  options.nms = request.nms;
  options.nms.classes = read_classes(request.classes, model.num_classes());
  const PixelSize input = read_image_size("--img", request.image_size);
  const int64_t stride = model.max_stride();
  options.height = round_up_to_stride(input.height, stride);
  options.width = round_up_to_stride(input.width, stride);
  if (!request.tile_size.empty()) {
    const PixelSize tile = read_image_size("--tile", request.tile_size);
    options.tiles = TileOptions{tile.height, tile.width, request.overlap};
  }
  return options;
}

int detect(const DetectRequest& request) {
  const OpenedWeights weights = open_weights(request.weights, request.cfg);
  Detector detector(*weights.model, detector_options(request, *weights.model));
  const ImageSources sources = find_images(request.source);
  for (const std::string& line : sources.left_out) {
    std::fprintf(stderr, "left out: %s\n", line.c_str());
  }
  ImageLimits limits;
  limits.bands = bands_of_images(weights.model->input_channels());
  DetectionFolder folder(request.output, weights.class_names, request.folder);
  int64_t images = 0, boxes = 0;
  double seconds = 0;
  stop_signals::install();
  for (size_t i = 0; i < sources.images.size() && !stop_signals::requested();
       ++i) {
    const auto& file = sources.images[i];
    ImageResult image = decode_image(file, limits);
    if (!image.ok()) {
      std::fprintf(stderr, "left out: %s: %s\n", file.c_str(),
                   image.reason.c_str());
      continue;
    }
    const auto start = Clock::now();
    ImageDetections found{file, image.pixels.rows, image.pixels.cols,
                          detector.detect(image.pixels)};
    const double spent =
        std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("image %zu/%zu %s: %lld x %lld, %s, %.0f ms\n", i + 1,
                sources.images.size(), file.c_str(),
                static_cast<long long>(found.height),
                static_cast<long long>(found.width),
                counts_text(found, weights.class_names).c_str(), spent * 1e3);
    std::fflush(stdout);
    ++images;
    boxes += static_cast<int64_t>(found.detections.size());
    seconds += spent;
    image.pixels = shown_colours(image.pixels);
    folder.add(std::move(found), image.pixels);
  }
  const bool is_interrupted = stop_signals::requested();
  if (images == 0 && !is_interrupted) {
    throw Error("detect",
                "none of the " + std::to_string(sources.images.size()) +
                    " images of " + request.source + " can be decoded",
                "see the lines above", ExitCode::kData);
  }
  folder.finish();
  std::printf("%s%lld boxes in %lld images, %.0f ms per image%s%s\n",
              is_interrupted ? "interrupted: " : "",
              static_cast<long long>(boxes), static_cast<long long>(images),
              seconds * 1e3 / static_cast<double>(std::max<int64_t>(1, images)),
              folder.path().empty() ? "" : "; results in ",
              folder.path().c_str());
  return is_interrupted ? static_cast<int>(ExitCode::kInterrupted) : 0;
}

}  // namespace

int detect_command(int argc, char** argv) {
  DetectRequest request;
  bool no_pictures = false, no_labels = false, no_confidences = false;
  CLI::App app("Boxes in images, by a file of weights", "detect");
  app.add_option("--weights", request.weights)->required();
  app.add_option("--source", request.source)->required();
  app.add_option("--output", request.output)->required();
  app.add_flag("--exist-ok", request.folder.may_exist);
  app.add_option("--cfg", request.cfg);
  app.add_option("--img,--imgsz,--img-size", request.image_size);
  app.add_option("--tile", request.tile_size);
  app.add_option("--tile-overlap", request.overlap)->check(within(0.0, 0.9));
  app.add_option("--conf-thres", request.nms.confidence_threshold)
      ->check(within(0.0, 1.0));
  app.add_option("--iou-thres", request.nms.iou_threshold)
      ->check(within(0.0, 1.0));
  app.add_option("--max-det", request.nms.max_detections)
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--classes", request.classes);
  app.add_flag("--agnostic-nms", request.nms.agnostic);
  app.add_flag("--save-txt", request.folder.text);
  app.add_flag("--save-conf", request.folder.confidences_in_text);
  app.add_flag("--save-csv", request.folder.csv);
  app.add_flag("--save-json", request.folder.json);
  app.add_flag("--save-crop", request.folder.crops);
  app.add_flag("--nosave", no_pictures);
  app.add_flag("--hide-labels", no_labels);
  app.add_flag("--hide-conf", no_confidences);
  app.add_option("--line-thickness", request.folder.annotate.line_width)
      ->check(CLI::Range(1, 100));
  app.add_option("--threads", request.threads)->check(CLI::Range(1, 1024));
  parse_arguments(app, argc, argv);
  request.folder.pictures = !no_pictures;
  request.folder.annotate.labels = !no_labels;
  request.folder.annotate.confidences = !no_confidences;
  at::set_num_threads(request.threads);
  return detect(request);
}

}  // namespace headroom
