#include "worker/data/codecs/reduced_picture.h"

#include <algorithm>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using GoOn = std::function<bool(int64_t, int64_t)>;

// The picture whose pixel is the mean of `factor` x `factor`; at the right edge
// the last column fills the square. False: ended.
bool reduce(ScanlineReader& reader, int64_t factor, const GoOn& go_on,
            cv::Mat& picture) {
  const ImageHeader& header = reader.header();
  const auto parts = [factor](int64_t side) {
    return static_cast<int>((side + factor - 1) / factor);
  };
  picture.create(parts(header.height), parts(header.width), CV_8UC3);
  cv::Mat row(1, static_cast<int>(header.width), reader.type());
  cv::Mat padded, narrow, sum(1, picture.cols, CV_32SC3);
  for (int y = 0; y < picture.rows; ++y) {
    const int64_t begin = y * factor;
    const int64_t rows = std::min(factor, header.height - begin);
    sum.setTo(0);
    for (int64_t i = 0; i < rows; ++i) {
      reader.read(row);
      const cv::Mat colours = shown_colours(row);
      cv::copyMakeBorder(colours, padded, 0, 0, 0,
                         static_cast<int>(picture.cols * factor) - colours.cols,
                         cv::BORDER_REPLICATE);
      cv::resize(padded, narrow, {picture.cols, 1}, 0, 0, cv::INTER_AREA);
      cv::add(sum, narrow, sum, cv::noArray(), CV_32S);
    }
    sum.convertTo(picture.row(y), CV_8U, 1.0 / static_cast<double>(rows));
    if (!go_on(begin + rows, header.height)) return false;
  }
  reader.finish();
  return true;
}

ReducedPicture reduced_from(const fs::path& source, const ImageLimits& limits,
                            int64_t longest, const GoOn& go_on) {
  ReducedPicture result;
  result.reason = read_image_rows(source, limits, [&](ScanlineReader& reader) {
    const ImageHeader& header = reader.header();
    const int64_t side = std::max(header.height, header.width);
    cv::Mat picture;
    if (reduce(reader, (side + longest - 1) / longest, go_on, picture)) {
      result.pixels = upright(std::move(picture), header.orientation);
    }
  });
  if (!result.reason.empty()) result.pixels.release();
  return result;
}

}  // namespace

ReducedPicture reduced_picture(const fs::path& file, const ImageLimits& limits,
                               int64_t longest, const GoOn& go_on) {
  const int page = overview_page(file, limits, longest);
  const std::string overview = file.native() + "#" + std::to_string(page);
  if (page > 0 && names_page(overview)) {
    ReducedPicture result = reduced_from(overview, limits, longest, go_on);
    // A damaged overview is no damage of the image.
    if (result.reason.empty()) return result;
  }
  return reduced_from(file, limits, longest, go_on);
}

}  // namespace headroom::codecs
