#include "worker/data/labels/measured_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/parallel_for.h"

namespace headroom::labels {
namespace {

// The values of each band; finite numbers only.
using BandValues = std::vector<std::vector<double>>;

// Position number `number` of `most` positions that are spread evenly over
// `length`.
int64_t spread_place(int64_t number, int64_t most, int64_t length) {
  return number * length / std::min(most, length);
}

// Also compares as float32, because the text that names a value may have fewer
// digits than the pixels.
bool is_same(double value, double named) {
  return value == named ||
         (std::abs(named) <= std::numeric_limits<float>::max() &&
          static_cast<float>(value) == static_cast<float>(named));
}

// Adds up to `most` pixels of a row. NaN, and the value that the file names for
// pixels without data, are skipped.
void take_row(const cv::Mat& row, int64_t most, std::optional<double> no_data,
              BandValues& values) {
  cv::Mat numbers;
  row.convertTo(numbers, CV_64F);
  const int bands = numbers.channels();
  const auto* source = numbers.ptr<double>(0);
  for (int64_t i = 0; i < std::min<int64_t>(most, numbers.cols); ++i) {
    const int64_t column = spread_place(i, most, numbers.cols);
    for (int band = 0; band < bands; ++band) {
      const double value = source[column * bands + band];
      if (std::isfinite(value) && !(no_data && is_same(value, *no_data))) {
        values[static_cast<size_t>(band)].push_back(value);
      }
    }
  }
}

// The sampled values of an image; empty if the image cannot be read.
BandValues values_of(const std::filesystem::path& file) {
  constexpr int64_t kMostLines = 64;
  const codecs::ImageLimits limits{.bands = codecs::kAnyBands,
                                   .as_stored = true};
  const std::optional<double> no_data = codecs::no_data_of(file);
  BandValues values;
  const std::string reason = codecs::read_image_rows(
      file, limits, [&](codecs::ScanlineReader& reader) {
        const codecs::ImageHeader& header = reader.header();
        values.resize(static_cast<size_t>(CV_MAT_CN(reader.type())));
        cv::Mat row(1, static_cast<int>(header.width), reader.type());
        int64_t next = 0;
        for (int64_t i = 0; i < std::min(kMostLines, header.height); ++i) {
          const int64_t wanted = spread_place(i, kMostLines, header.height);
          reader.pass(wanted - next);
          reader.read(row);
          next = wanted + 1;
          take_row(row, kMeasuredPixels / kMostLines, no_data, values);
        }
      });
  return reason.empty() ? values : BandValues();
}

double percentile(std::vector<double>& values, double percent) {
  const auto last = static_cast<double>(values.size() - 1);
  const auto place = values.begin() +
                     static_cast<ptrdiff_t>(std::lround(percent / 100 * last));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

ValueRanges range_of(const std::vector<std::filesystem::path>& files,
                     const configs::RangeWish& wish, int64_t num_threads) {
  std::vector<BandValues> images(files.size());
  parallel_for(static_cast<int64_t>(files.size()), num_threads, [&](int64_t i) {
    images[static_cast<size_t>(i)] = values_of(files[static_cast<size_t>(i)]);
  });
  BandValues all;
  for (BandValues& image : images) {
    all.resize(wish.per_band ? std::max(all.size(), image.size()) : 1);
    for (size_t band = 0; band < image.size(); ++band) {
      std::vector<double>& to = all[wish.per_band ? band : 0];
      to.insert(to.end(), image[band].begin(), image[band].end());
    }
    image.clear();
  }
  ValueRanges ranges;
  for (std::vector<double>& values : all) {
    if (values.empty()) {
      throw Error("data",
                  "range asks for percentiles, but no training image that was "
                  "looked at has a value",
                  "see headroom verify, or write range: [low, high]",
                  ExitCode::kData);
    }
    const ValueRange range{percentile(values, wish.low_percentile),
                           percentile(values, wish.high_percentile)};
    if (range.low == range.high) {
      throw Error("data",
                  cat("both percentiles that range asks for are ", range.low,
                      " in the training images"),
                  "write percentiles further apart, or range: [low, high]",
                  ExitCode::kData);
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

ValueRanges measured_range(const Dataset& dataset,
                           const configs::RangeWish& wish,
                           int64_t num_threads) {
  const int64_t used = std::min(kMeasuredImages, dataset.size());
  std::vector<std::filesystem::path> files;
  for (int64_t i = 0; i < used; ++i) {
    files.push_back(dataset.path(spread_place(i, used, dataset.size())));
  }
  return range_of(files, wish, num_threads);
}

std::string note_on_deep_images(
    const std::vector<std::filesystem::path>& images, const std::string& how) {
  constexpr int64_t kLookedAt = 8;
  const auto size = static_cast<int64_t>(images.size());
  std::vector<std::filesystem::path> deep;
  for (int64_t i = 0; i < std::min(kLookedAt, size); ++i) {
    const std::filesystem::path& file =
        images[static_cast<size_t>(spread_place(i, kLookedAt, size))];
    if (codecs::has_deep_samples(file)) deep.push_back(file);
  }
  if (deep.empty()) return "";
  std::string text = "images such as " + deep.front().string() +
                     " have more than 8 bits and are " + how;
  configs::RangeWish wish;
  wish.low_percentile = 1;
  wish.high_percentile = 99;
  try {
    const ValueRange measured = range_of(deep, wish, 1).front();
    text += "; 98 % of their values lie in range: [" +
            significant_text(measured.low, 9) + ", " +
            significant_text(measured.high, 9) + "]";
  } catch (const Error&) {
    // All values are equal, so no range can be proposed.
  }
  return text;
}

}  // namespace headroom::labels
