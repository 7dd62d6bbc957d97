#include "worker/data/codecs/reduced_picture.h"

#include <algorithm>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "parallel/base/text.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

namespace fs = std::filesystem;
using GoOn = std::function<bool(int64_t, int64_t)>;

// Averages the rows of the file into the picture. A row of the file contributes
// to one row of the picture or to two. Returns false if `go_on` stopped it.
bool reduce(ScanlineReader& reader, cv::Size size, const GoOn& go_on,
            cv::Mat& picture) {
  const int64_t height = reader.header().height;
  picture.create(size, CV_8UC3);
  cv::Mat row(1, static_cast<int>(reader.header().width), reader.type());
  cv::Mat bytes, narrow, sum = cv::Mat::zeros(1, size.width, CV_32FC3);
  const auto add = [&](int64_t part) {
    cv::scaleAdd(narrow,
                 static_cast<double>(part) / static_cast<double>(height), sum,
                 sum);
  };
  // Positions are counted in fractions of a picture row: one picture row is
  // `height` units, one file row is size.height units.
  for (int64_t y = 0, at = 0; y < height; ++y, at += size.height) {
    reader.read(row);
    cv::resize(shown_colours(row), bytes, {size.width, 1}, 0, 0,
               cv::INTER_AREA);
    bytes.convertTo(narrow, CV_32F);
    const int64_t left = height - at % height;
    add(std::min<int64_t>(left, size.height));
    if (left > size.height) continue;
    sum.convertTo(picture.row(static_cast<int>(at / height)), CV_8U);
    sum.setTo(0);
    add(size.height - left);
    if (y + 1 < height && !go_on(y + 1, height)) return false;
  }
  reader.finish();
  return true;
}

// The reduced size, whose longer side is `longest`, or the image's own size if
// that is smaller.
cv::Size reduced_size(const ImageHeader& image, int64_t longest) {
  const int64_t longer = std::max(image.height, image.width);
  const int64_t side = std::min(longer, longest);
  const auto reduced = [&](int64_t length) {
    return static_cast<int>(
        std::max<int64_t>(1, (2 * length * side + longer) / (2 * longer)));
  };
  return {reduced(image.width), reduced(image.height)};
}

ReducedPicture reduced_from(const fs::path& source, const ImageLimits& limits,
                            int64_t longest, const GoOn& go_on) {
  ReducedPicture result;
  result.reason = read_image_rows(source, limits, [&](ScanlineReader& reader) {
    cv::Mat picture;
    if (reduce(reader, reduced_size(reader.header(), longest), go_on,
               picture)) {
      result.pixels = upright(std::move(picture), reader.header().orientation);
    }
  });
  if (!result.reason.empty()) result.pixels.release();
  return result;
}

}  // namespace

ReducedPicture reduced_picture(const fs::path& file, const ImageLimits& limits,
                               int64_t longest, const GoOn& go_on) {
  if (const int page = overview_page(file, limits, longest); page > 0) {
    const std::string overview = cat(file.native(), "#", page);
    // `overview` does not name a page if the file has no TIFF suffix, or if a
    // file with exactly this name exists.
    std::error_code none;
    if (names_page(overview) && !fs::exists(overview, none)) {
      ReducedPicture result = reduced_from(overview, limits, longest, go_on);
      // If the overview is damaged, read the image itself.
      if (result.reason.empty()) return result;
    }
  }
  return reduced_from(file, limits, longest, go_on);
}

}  // namespace headroom::codecs
