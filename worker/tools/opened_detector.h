// OpenedDetector: a network on the device of a detect command, with the
// command's options for pictures. Examines one picture at a time.
//
// Errors: Error (exit 2) for flags, weights or a device that cannot be used.
#pragma once

#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <string>

#include "parallel/devices/compute_device.h"
#include "worker/data/codecs/image.h"
#include "worker/detect/detector.h"
#include "worker/tools/detect_run.h"
#include "worker/weights/open_weights.h"

namespace headroom::tools {

class OpenedDetector {
 public:
  // Call it before LibTorch is first used.
  explicit OpenedDetector(const DetectRequest& request);

  detect::Detector& detector() { return detector_; }
  const detect::Detector& detector() const { return detector_; }
  const weights::OpenedWeights& weights() const { return weights_; }
  const detect::DetectorOptions& options() const { return options_; }
  const codecs::ImageLimits& limits() const { return limits_; }

  struct Picture {
    detect::TileFindings tiles;
    cv::Mat pixels;         // empty if the image is too large for memory
    std::string reason;     // why the image is left out; "" if it is not
    bool is_whole = false;  // whether all tiles were examined
  };
  // The findings of an unfinished run in an image's tiles, if there are any.
  using KnownTiles = std::optional<detect::TileFindings>;
  // Returns the function that is called with each examined tile of a picture.
  using Watch = std::function<detect::OnTile(const detect::TileFindings&)>;

  // Examines the tiles of an image file that are not in `known`.
  Picture look_in(const std::filesystem::path& file, const KnownTiles& known,
                  const Watch& watch);

  struct Obstacle {
    std::string why;  // "" if there is none
    std::string remedy;
  };
  // The reason why this video, or every video, cannot be examined.
  Obstacle obstacle_to(const std::filesystem::path& video) const;

 private:
  const devices::ComputeDevice device_;
  const weights::OpenedWeights weights_;
  const detect::DetectorOptions options_;
  detect::Detector detector_;
  codecs::ImageLimits limits_;
};

}  // namespace headroom::tools
