#include "worker/tools/opened_detector.h"

#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/base/value_range.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/run/run_device.h"
#include "worker/tools/tool_command.h"
#include "worker/video/video.h"

namespace headroom::tools {
namespace {

std::vector<int64_t> read_classes(const std::string& text, int64_t classes) {
  std::istringstream words(text);
  std::vector<int64_t> wanted;
  for (std::string word; words >> word;) {
    const auto index = parse_whole(word, 0, classes - 1);
    if (!index) {
      throw Error("detect",
                  cat("--classes ", word,
                      " is no class of these weights, which "
                      "have 0 to ",
                      classes - 1),
                  "give numbers, for example --classes 0 2");
    }
    wanted.push_back(*index);
  }
  return wanted;
}

// Converts a value of --resample.
detect::Resample resample_of(const std::string& name) {
  return name == "area" ? detect::Resample::kArea : detect::Resample::kBilinear;
}

detect::DetectorOptions detector_options(const DetectRequest& request,
                                         const model::LayerGraph& model) {
  detect::DetectorOptions options;
  options.nms = request.nms;
  options.nms.iou_threshold = metrics::iou_threshold_of(
      request.nms.iou_threshold, model.has_anchors(), 0.45);
  options.nms.classes = read_classes(request.classes, model.num_classes());
  const PixelSize input =
      network_size(request.image_size, request.weights, true);
  const int64_t stride = model.max_stride();
  options.height = round_up(input.height, stride);
  options.width = round_up(input.width, stride);
  options.resample = resample_of(request.resample);
  if (!request.tile_size.empty()) {
    const PixelSize tile = read_image_size("--tile", request.tile_size);
    options.tiles = detect::DetectionTiles{
        .height = tile.height, .width = tile.width, .overlap = request.overlap};
  }
  return options;
}

// Call it before LibTorch is first used.
devices::ComputeDevice device_of(const std::string& named) {
  if (parse_device_list(named).size() > 1) {
    throw Error("detect",
                "--device " + named + " names several, and one is looked on",
                "name one of them");
  }
  configs::RunConfig config;
  config.device = named;
  return run::choose_device(config, 0, 1).device;
}

weights::OpenedWeights open_on(const devices::ComputeDevice& device,
                               const DetectRequest& request) {
  weights::OpenedWeights opened =
      weights::open_weights(request.weights, request.cfg);
  for (const model::NamedTensor& one : opened.model->state()) {
    *one.tensor = device.upload(*one.tensor);
  }
  return opened;
}

}  // namespace

OpenedDetector::OpenedDetector(const DetectRequest& request)
    : device_(device_of(request.device)),
      weights_(open_on(device_, request)),
      options_(detector_options(request, *weights_.model)),
      detector_(*weights_.model, options_, device_.device()) {
  limits_.bands = layers::picture_channels(weights_.model->input_channels());
  limits_.ranges = weights_.ranges;
  const std::string why = range_error(limits_.ranges, limits_.bands);
  if (why.empty()) return;
  throw Error("detect", request.weights + ": " + why,
              "use other weights: these contradict themselves");
}

OpenedDetector::Picture OpenedDetector::look_in(
    const std::filesystem::path& file, const KnownTiles& known,
    const Watch& watch) {
  const auto tiles_of = [&](codecs::ImageSize size) {
    return known && known->size == size ? *known : detector_.tiles_of(size);
  };
  const codecs::StreamedImage header = codecs::inspect_streamed(file, limits_);
  Picture picture;
  if (options_.tiles && header.ok() &&
      int64_t{header.size.height} * header.size.width > limits_.max_pixels) {
    picture.tiles = tiles_of(header.size);
    auto look = detector_.look_in_file(file, limits_, picture.tiles,
                                       watch(picture.tiles));
    picture.reason = std::move(look.reason);
    picture.is_whole = look.is_whole;
    return picture;
  }
  codecs::ImageResult image = codecs::decode_image(file, limits_);
  picture.reason = image.reason;
  if (!image.ok()) return picture;
  picture.pixels = std::move(image.pixels);
  picture.tiles = tiles_of({picture.pixels.rows, picture.pixels.cols});
  picture.is_whole =
      detector_.look(picture.pixels, picture.tiles, watch(picture.tiles));
  return picture;
}

OpenedDetector::Obstacle OpenedDetector::obstacle_to(
    const std::filesystem::path& video) const {
  const std::string frames = "take its frames first, for example ffmpeg -i " +
                             shell_word(video.string()) + " frames/%06d.jpg";
  if (limits_.bands != codecs::kColours) {
    return {cat("videos have colours, but the model's ch is ", limits_.bands),
            frames};
  }
  if (!limits_.ranges.empty()) {
    return {"videos have 8 bits, but the weights were trained on values of " +
                to_text(limits_.ranges),
            frames};
  }
  return {video::check_programs(), video::kInstallPrograms};
}

}  // namespace headroom::tools
