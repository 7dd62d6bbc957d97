#include "worker/detect/video_detection.h"

#include <chrono>
#include <memory>
#include <opencv2/core.hpp>
#include <system_error>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "worker/video/video.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Writes a video under a temporary name; finish() renames it to NAME.mp4. A
// video that is not finished is removed.
class AnnotatedVideo {
 public:
  AnnotatedVideo(fs::path path, const video::VideoFormat& format)
      : path_(std::move(path)), partial_(path_.string() + kPartialSuffix) {
    std::string reason;
    writer_ = video::create_video(partial_.string(), format, reason);
    if (writer_) return;
    remove();
    throw Error("detect", path_.string() + " cannot be written: " + reason,
                "leave the annotated video out with --nosave");
  }
  ~AnnotatedVideo() {
    writer_.reset();  // FFmpeg must not create the file again
    remove();
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
  std::unique_ptr<video::VideoWriter> writer_;
};

// The format of a video that has every `stride`th picture of the original and
// is as long as the original.
video::VideoFormat annotated_format(const video::VideoFormat& from,
                                    int64_t stride) {
  video::VideoFormat format = from;
  format.rate_denominator *= stride;
  return format;
}

}  // namespace

VideoOutcome detect_in_video(const fs::path& video, Detector& detector,
                             DetectionFolder& folder,
                             const VideoOptions& options) {
  VideoOutcome outcome;
  const auto reader = video::open_video(
      video.string(),
      {.max_pixels = options.max_pixels, .stride = options.stride},
      outcome.fault);
  if (!reader) return outcome;
  const video::VideoFormat& format = reader->format();
  std::unique_ptr<AnnotatedVideo> annotated;
  std::string name;
  cv::Mat pixels(format.height, format.width, CV_8UC3);
  for (int64_t number = 1; !options.stopped() && reader->next(pixels.data);
       number += options.stride) {
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
          folder.place_of(name + ".mp4"),
          annotated_format(format, options.stride));
    }
    annotated->write(pixels);
  }
  if (annotated) annotated->finish();
  outcome.fault = options.stopped() ? "" : reader->fault();
  return outcome;
}

}  // namespace headroom::detect
