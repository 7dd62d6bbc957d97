// LevelReader: reads the rows of an image file as 16-bit levels. The data set
// declares the range of values that is spread over the levels
// (ImageLimits::ranges).
//
//   level = 65535 (value - low) / (high - low), rounded, within 0 .. 65535
//
// Two different integers never share a level if the range is no wider than 16
// bits; float32 keeps a precision of 1/65535 of the range. Augmentation and
// network do not depend on the range: level 65535 means 1, as 255 does in 8-bit
// pixels.
//
// A NaN value counts as damage: the file is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {

// Maps the values of a range to levels.
struct LevelScale {
  explicit LevelScale(const ValueRange& range)
      : low(range.low),
        levels_per_unit(kMostLevel / (range.high - range.low)) {}
  // REQUIRES: `value` is not NaN.
  uint16_t level_of(double value) const {
    const double level = (value - low) * levels_per_unit;
    return static_cast<uint16_t>(std::clamp(level, 0.0, double{kMostLevel}) +
                                 0.5);
  }

  double low, levels_per_unit;
};

class LevelReader : public ScanlineReader {
 public:
  // Throws ImageRefusal if the file's bands do not match the ranges.
  LevelReader(std::unique_ptr<ScanlineReader> stored,
              const ImageLimits& limits);

  void read(cv::Mat& rows) override;
  void skip(int64_t rows) override;
  void pass(int64_t rows) override;
  void finish() override;

 private:
  template <typename Sample>
  void convert(const cv::Mat& samples, cv::Mat& rows) const;
  void read_slice(cv::Mat& rows);

  std::unique_ptr<ScanlineReader> stored_;
  std::vector<LevelScale> scales_;  // one for each band
  cv::Mat samples_;
  int64_t next_ = 0;  // number of the next row
};

}  // namespace headroom::codecs
