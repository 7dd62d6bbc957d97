#include "worker/tools/detect_run.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "worker/control/stop_signals.h"
#include "worker/data/codecs/image.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/measured_range.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/detector.h"
#include "worker/detect/image_sources.h"
#include "worker/detect/map_layers.h"
#include "worker/detect/video_detection.h"
#include "worker/maps/map_plugin.h"
#include "worker/tools/detect_maps.h"
#include "worker/tools/detect_resume.h"
#include "worker/tools/opened_detector.h"
#include "worker/tools/tool_command.h"

namespace headroom::tools {
namespace {

constexpr size_t kLongestName = 8192;

using Clock = std::chrono::steady_clock;

void leave_out(const std::string& what) {
  std::fprintf(stderr, "left out: %s\n",
               short_line(what, kLongestName).c_str());
}

// Progress for a command that prints a line per image on standard output.
ToolProgress::Output beside_lines() {
  ToolProgress::Output output = ToolProgress::standard_error();
  output.has_own_lines = true;
  return output;
}

using detect::JournalRecord;

// One run of detect: its sources, its outputs and its counts.
class DetectRun {
 public:
  explicit DetectRun(const DetectRequest& request)
      : opened_(request),
        sources_(detect::find_images(request.source)),
        folder_(request.output, weights_.class_names, request.folder) {
    if (!sources_.videos.empty()) check_videos(request);
    journal_.emplace(request, sources_, folder_);
    if (request.layers.any()) provide_maps(request.layers);
  }

  int run(const DetectRequest& request);

 private:
  void check_videos(const DetectRequest& request);
  void provide_maps(const detect::MapLayers::Formats& formats);
  void look_at_image(size_t index);
  using KnownTiles = OpenedDetector::KnownTiles;
  detect::OnTile note_tiles(size_t index, const detect::TileFindings& tiles);
  // The image's tiles without findings; nullopt if it cannot be read.
  KnownTiles unknown_tiles(size_t index) const;
  // Takes the journal's findings for the image. Returns whether they are
  // complete; otherwise they are in `tiles`.
  bool take_known(size_t index, KnownTiles& tiles);
  int64_t classes() const {
    return static_cast<int64_t>(weights_.class_names.size());
  }
  std::optional<std::vector<metrics::Detection>> look_at_seam(
      const SeamTile& tile);
  void look_at_video(size_t index, int64_t stride);
  // Takes the journal's findings for the video. Returns whether these are
  // complete; otherwise they are in `known`.
  bool take_known_video(size_t index, std::deque<JournalRecord>& known);
  std::string place_among_images(size_t index) const;
  // Prints "image 1/3 FILE" or "video 1/2 (12/300) FILE".
  void say(const std::string& which, const detect::ImageDetections& found,
           double seconds);
  // Before the first image is examined, reports how much work an unfinished run
  // has done.
  void say_what_is_known();
  void count(const detect::ImageDetections& found) {
    ++pictures_;
    boxes_ += static_cast<int64_t>(found.detections.size());
  }

  OpenedDetector opened_;
  detect::Detector& detector_ = opened_.detector();
  const weights::OpenedWeights& weights_ = opened_.weights();
  const detect::DetectorOptions& options_ = opened_.options();
  const codecs::ImageLimits& limits_ = opened_.limits();
  detect::ImageSources sources_;
  detect::DetectionFolder folder_;
  std::optional<ResumableDetection> journal_;  // set after sources_
  std::optional<DetectedMaps> maps_;           // set if map files are wanted
  int64_t pictures_ = 0, boxes_ = 0;
  int64_t known_pictures_ = 0, known_tiles_ = 0;  // found in the journal
  bool has_said_known_ = false, has_said_full_ = false;
  bool has_own_bar_ = false;  // the last image had several tiles
  double seconds_ = 0;
  ToolProgress progress_{beside_lines()};
};

// A video that --source names is examined or refused; videos in a folder may be
// left out.
void DetectRun::check_videos(const DetectRequest& request) {
  const std::string first = sources_.videos.front().string();
  const auto [why, remedy] = opened_.obstacle_to(first);
  if (why.empty()) return;
  if (sources_.images.empty()) {
    throw Error("detect", first + " is a video, and " + why, remedy);
  }
  leave_out(counted(static_cast<int64_t>(sources_.videos.size()), "video") +
            " of " + request.source + ": " + why + ": " + remedy);
  sources_.videos.clear();
}

void DetectRun::provide_maps(const detect::MapLayers::Formats& formats) {
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
  maps_.emplace(
      *plugin.api, folder_, weights_.class_names, sources_.images, progress_,
      DetectedMaps::Options{
          .formats = formats,
          .tiles = options_.tiles,
          .merge = detector_.merge_options(),
          .limits = limits_,
          .look = [this](const SeamTile& tile) { return look_at_seam(tile); }});
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
    const int64_t most = options_.nms.max_detections;
    // With tiles an image may have thousands of boxes.
    if (options_.tiles && !has_said_full_ &&
        static_cast<int64_t>(found.detections.size()) >= most) {
      has_said_full_ = true;
      std::fprintf(stderr,
                   "only the %lld surest boxes of an image are kept; a larger "
                   "--max-det keeps more\n",
                   static_cast<long long>(most));
    }
  });
  count(found);
  seconds_ += seconds;
}

void DetectRun::say_what_is_known() {
  if (!journal_->goes_on() || has_said_known_) return;
  has_said_known_ = true;
  progress_.above([&] {
    std::fprintf(stderr, "%s goes on: %s and %s were looked at before\n",
                 folder_.path().c_str(),
                 counted(known_pictures_, "image").c_str(),
                 counted(known_tiles_, "tile").c_str());
  });
}

std::string DetectRun::place_among_images(size_t index) const {
  return cat("image ", index + 1, "/", sources_.images.size());
}

DetectRun::KnownTiles DetectRun::unknown_tiles(size_t index) const {
  const auto& file = sources_.images[index];
  const codecs::StreamedImage header = codecs::inspect_streamed(file, limits_);
  const codecs::ImageSize size =
      header.ok() ? header.size : codecs::read_image_size(file, limits_).size;
  if (size.height <= 0 || size.width <= 0) return std::nullopt;
  return detector_.tiles_of(size);
}

detect::OnTile DetectRun::note_tiles(size_t index,
                                     const detect::TileFindings& tiles) {
  if (!options_.tiles) return [](size_t) { return true; };
  const auto all = static_cast<int64_t>(tiles.places.size());
  has_own_bar_ = all > 1;
  auto done = static_cast<int64_t>(std::ranges::count_if(
      tiles.found, [](const auto& one) { return one.has_value(); }));
  if (all > 1) progress_.begin(place_among_images(index), done);
  return [this, index, &tiles, all, done](size_t tile) mutable {
    journal_->append({.kind = JournalRecord::Kind::kTile,
                      .unit = static_cast<int64_t>(index),
                      .number = static_cast<int64_t>(tile),
                      .detections = tiles.found[tile].value()});
    if (all > 1) {
      progress_.reach(place_among_images(index), ++done, all, "tile");
    }
    return !stop_signals::requested();
  };
}

bool DetectRun::take_known(size_t index, KnownTiles& tiles) {
  const auto unit = static_cast<int64_t>(index);
  const auto has_tiles = [&] {
    if (!tiles) tiles = unknown_tiles(index);
    return tiles.has_value();
  };
  const auto is_tile = [&](const JournalRecord& one) {
    const auto number = static_cast<size_t>(one.number);
    return options_.tiles && has_tiles() && number < tiles->places.size() &&
           !tiles->found[number] &&
           detect::has_boxes_in(one, tiles->places[number], classes());
  };
  while (auto one = journal_->next(JournalRecord::Kind::kTile, unit, is_tile)) {
    tiles->found[static_cast<size_t>(one->number)] = std::move(one->detections);
    ++known_tiles_;
  }
  const auto is_image = [&](const JournalRecord& one) {
    return has_tiles() && one.height == tiles->size.height &&
           one.width == tiles->size.width &&
           detect::has_boxes_in(one, {0, 0, one.height, one.width},
                                classes()) &&
           (!options_.tiles ||
            std::ranges::all_of(tiles->found, [](const auto& found) {
              return found.has_value();
            }));
  };
  auto done = journal_->next(JournalRecord::Kind::kImage, unit, is_image);
  if (!done) return false;
  ++known_pictures_;
  if (!options_.tiles) tiles->found.front() = done->detections;
  const detect::ImageDetections boxes{sources_.images[index], done->height,
                                      done->width, std::move(done->detections)};
  count(boxes);
  folder_.add_known(boxes);
  if (maps_) maps_->add(index, boxes, std::move(*tiles));
  return true;
}

void DetectRun::look_at_image(size_t index) {
  const auto unit = static_cast<int64_t>(index);
  KnownTiles known;
  if (take_known(index, known)) return;
  const bool was_left_out =
      journal_->next(JournalRecord::Kind::kLeftOut, unit).has_value();
  if (!was_left_out) say_what_is_known();
  const auto& file = sources_.images[index];
  const auto start = Clock::now();
  OpenedDetector::Picture picture =
      opened_.look_in(file, known, [&](const detect::TileFindings& tiles) {
        return note_tiles(index, tiles);
      });
  progress_.clear();
  if (!picture.reason.empty()) leave_out(file.string() + ": " + picture.reason);
  if (!picture.is_whole) {
    if (!picture.reason.empty() && !was_left_out) {
      journal_->append({.kind = JournalRecord::Kind::kLeftOut,
                        .unit = unit,
                        .detections = {}});
    }
    return;
  }
  say_what_is_known();
  journal_->begin();
  const codecs::ImageSize size = picture.tiles.size;
  const detect::ImageDetections found{file, size.height, size.width,
                                      detector_.merged(picture.tiles)};
  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  if (picture.pixels.empty()) {
    const auto go_on = [&](const detect::LargeProgress& progress) {
      progress_.reach(place_among_images(index) + " " + progress.step,
                      progress.done, progress.of, progress.noun);
      return !stop_signals::requested();
    };
    const bool is_added = folder_.add_large(found, limits_, go_on);
    progress_.clear();
    if (!is_added) return;
  } else {
    cv::Mat shown = codecs::shown_colours(picture.pixels);
    folder_.add(found, shown);
  }
  say(place_among_images(index) + " " + file.string(), found, seconds);
  if (maps_) maps_->add(index, found, std::move(picture.tiles));
  journal_->append({.kind = JournalRecord::Kind::kImage,
                    .unit = unit,
                    .height = found.height,
                    .width = found.width,
                    .detections = found.detections});
}

std::optional<std::vector<metrics::Detection>> DetectRun::look_at_seam(
    const SeamTile& tile) {
  const auto is_same = [&](const JournalRecord& one) {
    return one.number == tile.number && one.place == tile.place &&
           detect::has_boxes_in(one, {0, 0, tile.height, tile.width},
                                classes());
  };
  if (auto known = journal_->next(JournalRecord::Kind::kSeamTile, tile.mosaic,
                                  is_same)) {
    ++known_tiles_;
    return std::move(known->detections);
  }
  if (stop_signals::requested()) return std::nullopt;
  say_what_is_known();
  progress_.begin("seams", tile.number);
  auto found = detector_.look_at(tile.pixels());
  journal_->append({.kind = JournalRecord::Kind::kSeamTile,
                    .unit = tile.mosaic,
                    .number = tile.number,
                    .place = tile.place,
                    .detections = found});
  progress_.reach("seams", tile.number + 1, tile.of, "tile");
  return found;
}

bool DetectRun::take_known_video(size_t index,
                                 std::deque<JournalRecord>& known) {
  const auto unit = static_cast<int64_t>(index);
  const auto is_next = [&](const JournalRecord& one) {
    constexpr int64_t kLongestSide = 1 << 16;
    return one.number > (known.empty() ? 0 : known.back().number) &&
           one.height <= kLongestSide && one.width <= kLongestSide &&
           detect::has_boxes_in(one, {0, 0, one.height, one.width}, classes());
  };
  while (auto one =
             journal_->next(JournalRecord::Kind::kPicture, unit, is_next)) {
    known.push_back(std::move(*one));
  }
  known_pictures_ += static_cast<int64_t>(known.size());
  if (!journal_->next(JournalRecord::Kind::kVideo, unit)) return false;
  const auto& file = sources_.videos[index];
  const std::string name = folder_.begin_video(file);
  for (JournalRecord& one : known) {
    const detect::ImageDetections found{file, one.height, one.width,
                                        std::move(one.detections)};
    count(found);
    folder_.add_known_picture(name, one.number, found);
  }
  return true;
}

void DetectRun::look_at_video(size_t index, int64_t stride) {
  std::deque<JournalRecord> known;
  if (take_known_video(index, known)) return;
  say_what_is_known();
  const auto& file = sources_.videos[index];
  const std::string which =
      cat("video ", index + 1, "/", sources_.videos.size(), " (");
  detect::VideoOptions options;
  options.stride = stride;
  options.max_pixels = limits_.max_pixels;
  options.stopped = stop_signals::requested;
  options.known = [&]() -> std::optional<std::vector<metrics::Detection>> {
    if (known.empty()) return std::nullopt;
    auto boxes = std::move(known.front().detections);
    known.pop_front();
    return boxes;
  };
  options.on_picture = [&](const detect::VideoPicture& picture) {
    progress_.reach(cat("video ", index + 1), picture.number, picture.of);
    if (picture.is_known) return count(picture.found);
    const std::string of = picture.of > 0 ? cat("/", picture.of) : "";
    say(cat(which, picture.number, of, ") ", file.string()), picture.found,
        picture.seconds);
    journal_->append({.kind = JournalRecord::Kind::kPicture,
                      .unit = static_cast<int64_t>(index),
                      .number = picture.number,
                      .height = picture.found.height,
                      .width = picture.found.width,
                      .detections = picture.found.detections});
  };
  const detect::VideoOutcome outcome =
      detect::detect_in_video(file, detector_, folder_, options);
  progress_.clear();
  if (outcome.pictures == 0 && !stop_signals::requested()) {
    leave_out(file.string() + ": " +
              (outcome.fault.empty() ? "it has no pictures" : outcome.fault));
  } else if (!outcome.fault.empty()) {
    std::fprintf(stderr, "%s is damaged: %s\n",
                 short_line(file.string(), kLongestName).c_str(),
                 outcome.fault.c_str());
  }
  if (outcome.pictures > 0 && !stop_signals::requested()) {
    journal_->append({.kind = JournalRecord::Kind::kVideo,
                      .unit = static_cast<int64_t>(index),
                      .detections = {}});
  }
}

int DetectRun::run(const DetectRequest& request) {
  for (const std::string& line : sources_.left_out) leave_out(line);
  const std::string deep = labels::note_on_deep_images(
      sources_.images, limits_.ranges.empty()
                           ? "reduced to 8, as the weights were trained"
                           : "read with the range " + to_text(limits_.ranges) +
                                 " of the weights");
  if (!deep.empty()) std::fprintf(stderr, "%s\n", printable(deep).c_str());
  stop_signals::install();
  const size_t images = sources_.images.size();
  for (size_t i = 0; i < images && !stop_signals::requested(); ++i) {
    look_at_image(i);
    if (maps_) maps_->end_image(i);
    if (has_own_bar_ || (journal_->goes_on() && !has_said_known_)) continue;
    progress_.begin("detect", static_cast<int64_t>(i) + 1);
    progress_.reach("detect", static_cast<int64_t>(i) + 1,
                    static_cast<int64_t>(images));
  }
  progress_.clear();
  for (size_t i = 0; i < sources_.videos.size(); ++i) {
    if (!stop_signals::requested()) look_at_video(i, request.video_stride);
  }
  say_what_is_known();
  const bool is_interrupted = stop_signals::requested();
  if (pictures_ == 0 && !is_interrupted) {
    journal_->finish();
    const size_t files = images + sources_.videos.size();
    throw Error("detect",
                "nothing of " + counted(static_cast<int64_t>(files), "file") +
                    " of " + request.source + " can be decoded",
                "see the lines above", ExitCode::kData);
  }
  journal_->begin();
  folder_.finish();
  if (maps_) maps_->finish();
  if (!is_interrupted) journal_->finish();
  const int64_t looked = std::max<int64_t>(1, pictures_ - known_pictures_);
  std::printf(
      "%s%s in %s, %.0f ms per image%s%s\n",
      is_interrupted ? "interrupted: " : "", counted(boxes_, "box").c_str(),
      counted(pictures_, "image").c_str(),
      seconds_ * 1e3 / static_cast<double>(looked),
      folder_.path().empty() ? "" : "; results in ", folder_.path().c_str());
  if (const std::string more = journal_->command();
      is_interrupted && !more.empty()) {
    std::fprintf(stderr, "to go on: %s\n", more.c_str());
  }
  return is_interrupted ? static_cast<int>(ExitCode::kInterrupted) : 0;
}

}  // namespace

int run_detection(const DetectRequest& request) {
  return DetectRun(request).run(request);
}

}  // namespace headroom::tools
