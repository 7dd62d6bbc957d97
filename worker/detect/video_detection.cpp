#include "worker/detect/video_detection.h"

#include <chrono>
#include <memory>
#include <opencv2/core.hpp>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Writes NAME.mp4, which gets its name when it is complete.
class AnnotatedVideo {
 public:
  AnnotatedVideo(video::VideoApi& api, fs::path path,
                 const video::VideoFormat& format)
      : path_(std::move(path)), partial_(path_.string() + ".partial") {
    std::string reason;
    writer_ = api.create(partial_.string(), format, reason);
    if (writer_) return;
    remove();
    throw Error("detect", path_.string() + " cannot be written: " + reason,
                "leave the annotated video out with --nosave");
  }
  ~AnnotatedVideo() {
    if (writer_) remove();
  }
  AnnotatedVideo(const AnnotatedVideo&) = delete;
  AnnotatedVideo& operator=(const AnnotatedVideo&) = delete;

  // REQUIRES: `pixels` is RGB and continuous.
  void write(const cv::Mat& pixels) { check(writer_->write(pixels.data)); }
  void finish() {
    check(writer_->finish());
    writer_.reset();
    std::error_code error;
    fs::rename(partial_, path_, error);
    if (error) check(error.message());
  }

 private:
  void check(const std::string& reason) const {
    if (reason.empty()) return;
    throw Error("detect", path_.string() + " cannot be written: " + reason,
                "free some space, or leave it out with --nosave",
                ExitCode::kResource);
  }
  void remove() const {
    std::error_code ignored;
    fs::remove(partial_, ignored);
  }

  const fs::path path_, partial_;
  std::unique_ptr<video::VideoWriter> writer_;  // nullptr when finished
};

cv::Mat upright(const cv::Mat& pixels, int quarter_turns) {
  constexpr int kHowTurned[] = {0, cv::ROTATE_90_CLOCKWISE, cv::ROTATE_180,
                                cv::ROTATE_90_COUNTERCLOCKWISE};
  if (quarter_turns == 0) return pixels;
  cv::Mat turned;
  cv::rotate(pixels, turned, kHowTurned[quarter_turns]);
  return turned;
}

// The format of a video with every `stride`th picture, as long as before.
video::VideoFormat annotated_format(const video::VideoFormat& from,
                                    int64_t stride) {
  video::VideoFormat format = from;
  if (from.quarter_turns % 2 == 1) std::swap(format.width, format.height);
  format.rate_denominator *= static_cast<int>(stride);
  return format;
}

}  // namespace

VideoOutcome detect_in_video(video::VideoApi& api, const fs::path& video,
                             Detector& detector, DetectionFolder& folder,
                             const VideoOptions& options) {
  VideoOutcome outcome;
  const auto reader =
      api.open(video.string(), options.max_pixels, outcome.fault);
  if (!reader) return outcome;
  const video::VideoFormat& format = reader->format();
  std::unique_ptr<AnnotatedVideo> annotated;
  std::string name;
  cv::Mat stored(format.height, format.width, CV_8UC3);
  for (int64_t number = 1; !options.stopped(); ++number) {
    const bool is_wanted = (number - 1) % options.stride == 0;
    if (!reader->next(is_wanted ? stored.data : nullptr)) break;
    if (!is_wanted) continue;
    cv::Mat pixels = upright(stored, format.quarter_turns);
    const auto start = Clock::now();
    auto known = options.known ? options.known() : std::nullopt;
    const bool is_known = known.has_value();
    ImageDetections found{
        video, pixels.rows, pixels.cols,
        is_known ? std::move(*known) : detector.detect(pixels)};
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    ++outcome.pictures;
    options.on_picture({number, format.pictures, found, seconds, is_known});
    if (name.empty()) name = folder.begin_video(video);
    folder.add_picture(name, number, std::move(found), pixels);
    if (!folder.has_pictures()) continue;
    if (!annotated) {
      annotated = std::make_unique<AnnotatedVideo>(
          api, folder.place_of(name + ".mp4"),
          annotated_format(format, options.stride));
    }
    annotated->write(pixels);
  }
  if (annotated) annotated->finish();
  outcome.fault = options.stopped() ? "" : reader->fault();
  return outcome;
}

}  // namespace headroom::detect
