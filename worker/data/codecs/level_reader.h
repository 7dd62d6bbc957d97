// LevelReader: the rows of an image file as levels of 16 bits, by the range of
// values that a data set declares (ImageLimits::ranges).
//
//   level = 65535 (value - low) / (high - low), rounded, within 0 .. 65535
//
// Two whole values of a range no wider than 16 bits never share a level, and
// float32 keeps 1/65535 of its range. What follows, augmentation and network,
// needs to know of no range: 65535 is 1, as 255 is where pixels have 8 bits.
//
// A value that is no number (NaN) is damage: the file is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <vector>

#include "worker/data/codecs/image.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {

// The levels of a range's values.
struct LevelScale {
  explicit LevelScale(const ValueRange& range)
      : low(range.low),
        levels_per_unit(kMostLevel / (range.high - range.low)) {}
  // REQUIRES: `value` is a number.
  uint16_t level_of(double value) const {
    const double level = (value - low) * levels_per_unit;
    return static_cast<uint16_t>(std::clamp(level, 0.0, double{kMostLevel}) +
                                 0.5);
  }

  double low, levels_per_unit;
};

class LevelReader : public ScanlineReader {
 public:
  // Throws ImageRefusal where the file has not as many bands as ranges.
  // REQUIRES: limits.ranges is not empty.
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
  std::vector<LevelScale> scales_;  // one a band
  cv::Mat samples_;
  int64_t next_ = 0;  // the next row
};

}  // namespace headroom::codecs
