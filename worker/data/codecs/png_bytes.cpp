#include "worker/data/codecs/png_bytes.h"

#include <png.h>

#include <bit>
#include <csetjmp>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::codecs {
namespace {

struct PngWriter {
  png_structp png = nullptr;
  png_infop info = nullptr;
  jmp_buf jump;
  std::string bytes;

  ~PngWriter() { png_destroy_write_struct(&png, &info); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp) {
  std::longjmp(static_cast<PngWriter*>(png_get_error_ptr(png))->jump, 1);
}

void append(png_structp png, png_bytep data, size_t size) {
  static_cast<PngWriter*>(png_get_io_ptr(png))
      ->bytes.append(reinterpret_cast<const char*>(data), size);
}

// libpng must not be thrown through; no object with a destructor in here.
bool guarded_compress(PngWriter& writer, const cv::Mat& pixels) {
  if (setjmp(writer.jump) != 0) return false;
  png_structp png = writer.png;
  png_set_write_fn(png, &writer, append, nullptr);
  const bool deep = pixels.depth() == CV_16U;
  png_set_IHDR(
      png, writer.info, static_cast<png_uint_32>(pixels.cols),
      static_cast<png_uint_32>(pixels.rows), deep ? 16 : 8,
      pixels.channels() == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
      PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
      PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, writer.info);
  if (deep && std::endian::native == std::endian::little) png_set_swap(png);
  for (int y = 0; y < pixels.rows; ++y) png_write_row(png, pixels.ptr(y));
  png_write_end(png, writer.info);
  return true;
}

}  // namespace

std::string encode_png_bytes(const cv::Mat& pixels) {
  const bool is_known = (pixels.depth() == CV_8U || pixels.depth() == CV_16U) &&
                        (pixels.channels() == 1 || pixels.channels() == 3);
  HEADROOM_CHECK(is_known && !pixels.empty(), "no picture for a PNG");
  PngWriter writer;
  writer.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &writer, on_error,
                                       [](png_structp, png_const_charp) {});
  HEADROOM_CHECK(writer.png != nullptr, "libpng has no memory");
  writer.info = png_create_info_struct(writer.png);
  HEADROOM_CHECK(writer.info != nullptr, "libpng has no memory");
  HEADROOM_CHECK(guarded_compress(writer, pixels), "libpng refused a picture");
  return std::move(writer.bytes);
}

}  // namespace headroom::codecs
