#include "deploy/page/smaller_picture.h"

#include <algorithm>
#include <array>
#include <opencv2/imgproc.hpp>

#include "worker/data/codecs/image_writer.h"
#include "worker/data/codecs/reduced_picture.h"

namespace headroom::page {
namespace {

// The lengths of the longer side that are tried.
constexpr std::array kSides = {2560, 1920, 1600, 1280, 1024,
                               800,  640,  480,  320};
// Below this, the squares of JPEG are seen around text.
constexpr int kQuality = 85;

}  // namespace

std::string smaller_picture(const std::filesystem::path& file,
                            size_t most_bytes) {
  const cv::Mat whole =
      codecs::reduced_picture(file, {}, kSides.front(), [](int64_t, int64_t) {
        return true;
      }).pixels;
  if (whole.empty()) return "";
  const int longer = std::max(whole.rows, whole.cols);
  // A PNG may be small enough as a JPEG of its own size.
  std::string jpeg = codecs::encode_jpeg(whole, kQuality);
  for (const int side : kSides) {
    if (jpeg.size() <= most_bytes) return jpeg;
    if (side >= longer) continue;
    const double scale = static_cast<double>(side) / longer;
    const cv::Size size(std::max(1, cvRound(whole.cols * scale)),
                        std::max(1, cvRound(whole.rows * scale)));
    cv::Mat pixels;
    cv::resize(whole, pixels, size, 0, 0, cv::INTER_AREA);
    jpeg = codecs::encode_jpeg(pixels, kQuality);
  }
  return jpeg.size() <= most_bytes ? jpeg : "";
}

}  // namespace headroom::page
