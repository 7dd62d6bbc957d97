#include "worker/data/codecs/png_writer.h"

#include <png.h>

#include "parallel/base/check.h"

namespace headroom::codecs {

void write_png(const cv::Mat& pixels, const std::filesystem::path& file) {
  HEADROOM_CHECK(
      pixels.type() == CV_8UC3 && pixels.isContinuous() && !pixels.empty(),
      "no RGB picture");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = static_cast<png_uint_32>(pixels.cols);
  image.height = static_cast<png_uint_32>(pixels.rows);
  if (png_image_write_to_file(&image, file.c_str(), /*convert_to_8_bit=*/0,
                              pixels.data, /*row_stride=*/0,
                              /*colormap=*/nullptr) == 0) {
    throw Error("chart", "cannot write " + file.string() + ": " + image.message,
                "name a file in a folder that is there and has room");
  }
}

}  // namespace headroom::codecs
