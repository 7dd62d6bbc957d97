// headroom detect: boxes in images and videos, by a file of weights
// (worker/detect).
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/devices/compute_device.h"
#include "worker/control/stop_signals.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/detect/image_sources.h"
#include "worker/detect/map_layers.h"
#include "worker/detect/video_detection.h"
#include "worker/maps/map_plugin.h"
#include "worker/run/run_device.h"
#include "worker/tools/tool_command.h"
#include "worker/tools/tool_progress.h"
#include "worker/video/video_plugin.h"
#include "worker/weights/open_weights.h"

namespace headroom::tools {
namespace {

constexpr size_t kLongestName = 8192;

using Clock = std::chrono::steady_clock;

struct DetectRequest {
  std::string weights, cfg, source, output, image_size, tile_size, classes;
  std::string resample;
  double overlap = 0;
  std::string device;
  int threads = 0;
  int64_t video_stride = 0;
  metrics::NmsOptions nms{.multi_label = false, .classes = {}};
  detect::FolderOptions folder;
  detect::MapLayers::Formats layers;
};

std::vector<int64_t> read_classes(const std::string& text, int64_t classes) {
  std::istringstream words(text);
  std::vector<int64_t> wanted;
  for (std::string word; words >> word;) {
    const auto index = parse_whole(word, 0, classes - 1);
    if (!index) {
      throw Error("detect",
                  "--classes " + word +
                      " is no class of these weights, which "
                      "have 0 to " +
                      std::to_string(classes - 1),
                  "give numbers, for example --classes 0 2");
    }
    wanted.push_back(*index);
  }
  return wanted;
}

// The choices of --resample.
detect::Resample resample_of(const std::string& name) {
  return name == "area" ? detect::Resample::kArea : detect::Resample::kBilinear;
}

detect::DetectorOptions detector_options(const DetectRequest& request,
                                         const model::LayerGraph& model) {
  detect::DetectorOptions options;
  options.nms = request.nms;
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

void leave_out(const std::string& what) {
  std::fprintf(stderr, "left out: %s\n",
               short_line(what, kLongestName).c_str());
}

// Results that keep their folder's name would be written over them.
void refuse_own_sources(const detect::ImageSources& sources,
                        const DetectRequest& request) {
  if (!request.folder.may_exist) return;
  const std::filesystem::path folder =
      std::filesystem::weakly_canonical(request.output);
  for (const auto* files : {&sources.images, &sources.videos}) {
    for (const std::filesystem::path& file : *files) {
      const std::filesystem::path path =
          std::filesystem::weakly_canonical(file);
      if (std::ranges::mismatch(folder, path).in1 != folder.end()) continue;
      throw Error("detect",
                  file.string() + " lies in " + request.output +
                      ", where results are written to, and might be "
                      "overwritten",
                  "leave out --exist-ok, or give another --name");
    }
  }
}

// Has to be called before LibTorch is first used.
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

// Every image has a line on standard output.
ToolProgress::Output beside_lines() {
  ToolProgress::Output output = ToolProgress::standard_error();
  output.speaks_elsewhere = false;
  return output;
}

// What detect does with its sources, and what it comes to.
class DetectRun {
 public:
  explicit DetectRun(const DetectRequest& request)
      : tiled_(!request.tile_size.empty()),
        device_(device_of(request.device)),
        weights_(open_on(device_, request)),
        detector_(*weights_.model, detector_options(request, *weights_.model),
                  device_.device()),
        sources_(detect::find_images(request.source)),
        folder_(request.output, weights_.class_names, request.folder) {
    refuse_own_sources(sources_, request);
    limits_.bands = layers::picture_channels(weights_.model->input_channels());
    limits_.ranges = weights_.ranges;
    check_range(request);
    if (!sources_.videos.empty()) provide_videos(request);
    if (request.layers.any()) provide_layers(request.layers);
  }

  int run(const DetectRequest& request);

 private:
  void check_range(const DetectRequest& request) const;
  void provide_videos(const DetectRequest& request);
  void provide_layers(const detect::MapLayers::Formats& formats);
  void look_at_image(size_t index);
  // A picture that is too large to be held; false: this file is none.
  bool look_at_large_image(size_t index);
  void add(detect::ImageDetections found, cv::Mat& pixels);
  void look_at_video(size_t index, int64_t stride);
  std::string place_among_images(size_t index) const;
  // "image 1/3 FILE", "video 1/2 (12/300) FILE".
  void say(const std::string& which, const detect::ImageDetections& found,
           double seconds);

  const bool tiled_;
  const devices::ComputeDevice device_;
  const weights::OpenedWeights weights_;
  detect::Detector detector_;
  detect::ImageSources sources_;
  detect::DetectionFolder folder_;
  std::unique_ptr<detect::MapLayers> layers_;  // null: none are wanted
  codecs::ImageLimits limits_;
  video::VideoApi* videos_ = nullptr;  // set if there are videos to look at
  int64_t pictures_ = 0, boxes_ = 0;
  double seconds_ = 0;
  ToolProgress progress_{beside_lines()};
};

void DetectRun::check_range(const DetectRequest& request) const {
  const std::string why = range_error(limits_.ranges, limits_.bands);
  if (why.empty()) return;
  throw Error("detect", request.weights + ": " + why,
              "use other weights: these contradict themselves");
}

// One that was named is looked at or refused; those among images may be left
// out.
void DetectRun::provide_videos(const DetectRequest& request) {
  std::string why;
  if (limits_.bands != codecs::kColours) {
    why = "videos have colours, but the model's ch is " +
          std::to_string(limits_.bands);
  } else if (!limits_.ranges.empty()) {
    why = "videos have 8 bits, but the weights were trained on values of " +
          to_text(limits_.ranges);
  } else {
    const video::VideoPlugin plugin = video::load_video_plugin();
    videos_ = plugin.api;
    why = plugin.reason;
  }
  if (videos_ != nullptr) return;
  if (sources_.images.empty()) {
    throw Error(
        "detect", sources_.videos.front().string() + " is a video, and " + why,
        "take its frames first, for example ffmpeg -i " +
            shell_word(sources_.videos.front().string()) + " frames/%06d.jpg");
  }
  leave_out(counted(static_cast<int64_t>(sources_.videos.size()), "video") +
            " of " + request.source + ": " + why);
  sources_.videos.clear();
}

void DetectRun::provide_layers(const detect::MapLayers::Formats& formats) {
  const maps::MapPlugin plugin = maps::load_map_plugin();
  if (plugin.api == nullptr) {
    throw Error("detect",
                "boxes cannot be written with coordinates: " + plugin.reason,
                "or leave out --save-geojson and --save-gpkg");
  }
  if (!sources_.videos.empty()) {
    std::fprintf(stderr,
                 "videos have no coordinates: no layer has their "
                 "boxes\n");
  }
  layers_ = std::make_unique<detect::MapLayers>(*plugin.api, folder_, formats,
                                                weights_.class_names);
}

void DetectRun::say(const std::string& which,
                    const detect::ImageDetections& found, double seconds) {
  progress_.above([&] {
    std::printf("%s: %lld x %lld, %s, %.0f ms\n",
                short_line(which, kLongestName).c_str(),
                static_cast<long long>(found.height),
                static_cast<long long>(found.width),
                detect::counts_text(found, weights_.class_names).c_str(),
                seconds * 1e3);
    std::fflush(stdout);
  });
  ++pictures_;
  boxes_ += static_cast<int64_t>(found.detections.size());
  seconds_ += seconds;
}

std::string DetectRun::place_among_images(size_t index) const {
  return "image " + std::to_string(index + 1) + "/" +
         std::to_string(sources_.images.size()) + " " +
         sources_.images[index].string();
}

void DetectRun::look_at_image(size_t index) {
  if (look_at_large_image(index)) return;
  const auto& file = sources_.images[index];
  codecs::ImageResult image = codecs::decode_image(file, limits_);
  if (!image.ok()) {
    progress_.above([&] { leave_out(file.string() + ": " + image.reason); });
    return;
  }
  const auto start = Clock::now();
  detect::ImageDetections found{file, image.pixels.rows, image.pixels.cols,
                                detector_.detect(image.pixels)};
  say(place_among_images(index), found,
      std::chrono::duration<double>(Clock::now() - start).count());
  image.pixels = codecs::shown_colours(image.pixels);
  add(std::move(found), image.pixels);
}

void DetectRun::add(detect::ImageDetections found, cv::Mat& pixels) {
  if (layers_) {
    if (const std::string why = layers_->add(found); !why.empty()) {
      progress_.above([&] {
        std::fprintf(stderr, "%s: %s\n",
                     short_line(found.image.string(), kLongestName).c_str(),
                     why.c_str());
      });
    }
  }
  folder_.add(std::move(found), pixels);
}

bool DetectRun::look_at_large_image(size_t index) {
  const auto& file = sources_.images[index];
  const codecs::StreamedImage image = codecs::inspect_streamed(file, limits_);
  const codecs::ImageSize size = image.size;
  const int64_t pixels = int64_t{size.height} * size.width;
  if (!tiled_ || !image.ok() || pixels <= limits_.max_pixels) return false;
  const auto start = Clock::now();
  detect::Detector::FileDetections found = detector_.detect_in_file(
      file, size, limits_, [this](int64_t done, int64_t of) {
        progress_.reach("tiles", done, of);
        return !stop_signals::requested();
      });
  progress_.clear();
  if (!found.reason.empty()) leave_out(file.string() + ": " + found.reason);
  if (!found.is_whole) return true;
  detect::ImageDetections boxes{file, size.height, size.width,
                                std::move(found.detections)};
  say(place_among_images(index), boxes,
      std::chrono::duration<double>(Clock::now() - start).count());
  if (folder_.uses_pixels()) {
    std::fprintf(
        stderr,
        "%s is neither drawn nor cropped: %lld pixels are more than %lld\n",
        short_line(file.string(), kLongestName).c_str(),
        static_cast<long long>(pixels),
        static_cast<long long>(limits_.max_pixels));
  }
  cv::Mat none;
  add(std::move(boxes), none);
  return true;
}

void DetectRun::look_at_video(size_t index, int64_t stride) {
  const auto& file = sources_.videos[index];
  const std::string which = "video " + std::to_string(index + 1) + "/" +
                            std::to_string(sources_.videos.size()) + " (";
  detect::VideoOptions options;
  options.stride = stride;
  options.max_pixels = limits_.max_pixels;
  options.stopped = stop_signals::requested;
  options.on_picture = [&](const detect::VideoPicture& picture) {
    const std::string of =
        picture.of > 0 ? "/" + std::to_string(picture.of) : "";
    say(which + std::to_string(picture.number) + of + ") " + file.string(),
        picture.found, picture.seconds);
    progress_.reach("video " + std::to_string(index + 1), picture.number,
                    picture.of);
  };
  const detect::VideoOutcome outcome =
      detect::detect_in_video(*videos_, file, detector_, folder_, options);
  progress_.clear();
  if (outcome.pictures == 0 && !stop_signals::requested()) {
    leave_out(file.string() + ": " +
              (outcome.fault.empty() ? "it has no pictures" : outcome.fault));
  } else if (!outcome.fault.empty()) {
    std::fprintf(stderr, "%s is damaged: %s\n",
                 short_line(file.string(), kLongestName).c_str(),
                 outcome.fault.c_str());
  }
}

int DetectRun::run(const DetectRequest& request) {
  for (const std::string& line : sources_.left_out) leave_out(line);
  stop_signals::install();
  for (size_t i = 0; i < sources_.images.size(); ++i) {
    if (stop_signals::requested()) break;
    look_at_image(i);
    progress_.reach("detect", static_cast<int64_t>(i) + 1,
                    static_cast<int64_t>(sources_.images.size()));
  }
  progress_.clear();
  for (size_t i = 0; i < sources_.videos.size(); ++i) {
    if (!stop_signals::requested()) look_at_video(i, request.video_stride);
  }
  const bool is_interrupted = stop_signals::requested();
  if (pictures_ == 0 && !is_interrupted) {
    const size_t files = sources_.images.size() + sources_.videos.size();
    throw Error("detect",
                "nothing of " + counted(static_cast<int64_t>(files), "file") +
                    " of " + request.source + " can be decoded",
                "see the lines above", ExitCode::kData);
  }
  folder_.finish();
  if (layers_) layers_->finish();
  std::printf(
      "%s%s in %s, %.0f ms per image%s%s\n",
      is_interrupted ? "interrupted: " : "", counted(boxes_, "box").c_str(),
      counted(pictures_, "image").c_str(),
      seconds_ * 1e3 / static_cast<double>(std::max<int64_t>(1, pictures_)),
      folder_.path().empty() ? "" : "; results in ", folder_.path().c_str());
  return is_interrupted ? static_cast<int>(ExitCode::kInterrupted) : 0;
}

}  // namespace

int detect_command(int argc, char** argv) {
  DetectRequest request;
  bool no_pictures = false, no_labels = false, no_confidences = false;
  parse_arguments({{"--weights", &request.weights},
                   {"--source", &request.source},
                   {"--output", &request.output},
                   {"--exist-ok", &request.folder.may_exist},
                   {"--cfg", &request.cfg},
                   {"--img", &request.image_size},
                   {"--resample", &request.resample},
                   {"--tile", &request.tile_size},
                   {"--tile-overlap", &request.overlap},
                   {"--conf-thres", &request.nms.confidence_threshold},
                   {"--iou-thres", &request.nms.iou_threshold},
                   {"--max-det", &request.nms.max_detections},
                   {"--classes", &request.classes},
                   {"--agnostic-nms", &request.nms.agnostic},
                   {"--save-txt", &request.folder.text},
                   {"--save-conf", &request.folder.confidences_in_text},
                   {"--save-csv", &request.folder.csv},
                   {"--save-json", &request.folder.json},
                   {"--save-geojson", &request.layers.geojson},
                   {"--save-gpkg", &request.layers.geopackage},
                   {"--save-crop", &request.folder.crops},
                   {"--nosave", &no_pictures},
                   {"--hide-labels", &no_labels},
                   {"--hide-conf", &no_confidences},
                   {"--line-thickness", &request.folder.annotate.line_width},
                   {"--vid-stride", &request.video_stride},
                   {"--device", &request.device},
                   {"--threads", &request.threads}},
                  argc, argv);
  request.folder.pictures = !no_pictures;
  request.folder.annotate.labels = !no_labels;
  request.folder.annotate.confidences = !no_confidences;
  at::set_num_threads(request.threads);
  return DetectRun(request).run(request);
}

}  // namespace headroom::tools
