#include "worker/data/codecs/level_reader.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "parallel/base/text.h"
#include "worker/data/codecs/image_bands.h"

namespace headroom::codecs {
namespace {

// The number of bands after reading: gray becomes three bands if colours are
// wanted.
int bands_of(const ScanlineReader& stored, const ImageLimits& limits) {
  const int channels = CV_MAT_CN(stored.type());
  return channels == 1 && limits.bands == kColours ? kColours : channels;
}

}  // namespace

LevelReader::LevelReader(std::unique_ptr<ScanlineReader> stored,
                         const ImageLimits& limits)
    : ScanlineReader(stored->header(), CV_16UC(bands_of(*stored, limits))),
      stored_(std::move(stored)) {
  const int bands = CV_MAT_CN(type());
  const std::string why = range_error(limits.ranges, bands);
  if (!why.empty()) {
    throw ImageRefusal(why +
                       ": write one pair for all in data.yaml, or one "
                       "for each band");
  }
  for (int band = 0; band < bands; ++band) {
    scales_.emplace_back(limits.ranges[limits.ranges.size() == 1 ? 0 : band]);
  }
}

template <typename Sample>
void LevelReader::convert(const cv::Mat& samples, cv::Mat& rows) const {
  const int channels = samples.channels();
  const auto bands = static_cast<int>(scales_.size());
  for (int y = 0; y < rows.rows; ++y) {
    const auto* source = samples.ptr<Sample>(y);
    auto* target = rows.ptr<uint16_t>(y);
    for (int x = 0; x < rows.cols; ++x, source += channels, target += bands) {
      for (int band = 0; band < bands; ++band) {
        const auto value =
            static_cast<double>(source[channels == 1 ? 0 : band]);
        if constexpr (std::is_floating_point_v<Sample>) {
          if (std::isnan(value)) {
            throw ImageRefusal(
                cat("the value in row ", next_ + y, ", column ", x,
                    " is no number (NaN): fill such places, for example with "
                    "gdal_fillnodata"));
          }
        }
        target[band] = scales_[band].level_of(value);
      }
    }
  }
}

// Converts in slices to save memory: the stored samples may be as large as the
// levels, or twice as large.
void LevelReader::read(cv::Mat& rows) {
  constexpr int kSlice = 16;
  for (int begin = 0; begin < rows.rows; begin += kSlice) {
    cv::Mat slice = rows.rowRange(begin, std::min(begin + kSlice, rows.rows));
    read_slice(slice);
  }
}

void LevelReader::read_slice(cv::Mat& rows) {
  samples_.create(rows.rows, rows.cols, stored_->type());
  stored_->read(samples_);
  switch (samples_.depth()) {
    case CV_8U:
      convert<uint8_t>(samples_, rows);
      break;
    case CV_16U:
      convert<uint16_t>(samples_, rows);
      break;
    case CV_16S:
      convert<int16_t>(samples_, rows);
      break;
    default:
      convert<float>(samples_, rows);
  }
  next_ += rows.rows;
}

// Floating-point rows are converted even if skipped, so that a file with a NaN
// is refused whichever rows are wanted.
void LevelReader::skip(int64_t rows) {
  if (CV_MAT_DEPTH(stored_->type()) == CV_32F) {
    ScanlineReader::skip(rows);
    return;
  }
  stored_->skip(rows);
  next_ += rows;
}

void LevelReader::pass(int64_t rows) {
  stored_->pass(rows);
  next_ += rows;
}

void LevelReader::finish() { stored_->finish(); }

}  // namespace headroom::codecs
