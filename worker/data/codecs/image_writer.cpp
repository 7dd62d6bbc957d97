#include "worker/data/codecs/image_writer.h"

#include <jpeglib.h>
#include <png.h>
#include <tiffio.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_bands.h"

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

// No exception may pass through libpng, which is C, so errors longjmp to this
// function. Therefore it must hold no object with a destructor.
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

struct JpegWriter {
  jpeg_compress_struct info{};
  jpeg_error_mgr error{};
  jmp_buf jump;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  ~JpegWriter() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

// No exception may pass through libjpeg, which is C, so errors longjmp to this
// function. Therefore it must hold no object with a destructor.
bool guarded_compress(JpegWriter& writer, const cv::Mat& pixels, int quality) {
  if (setjmp(writer.jump) != 0) return false;
  jpeg_create_compress(&writer.info);
  jpeg_mem_dest(&writer.info, &writer.bytes, &writer.size);
  writer.info.image_width = static_cast<JDIMENSION>(pixels.cols);
  writer.info.image_height = static_cast<JDIMENSION>(pixels.rows);
  writer.info.input_components = 3;
  writer.info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&writer.info);
  jpeg_set_quality(&writer.info, quality, TRUE);
  jpeg_start_compress(&writer.info, TRUE);
  while (writer.info.next_scanline < writer.info.image_height) {
    auto* row = const_cast<JSAMPLE*>(
        pixels.ptr(static_cast<int>(writer.info.next_scanline)));
    jpeg_write_scanlines(&writer.info, &row, 1);
  }
  jpeg_finish_compress(&writer.info);
  return true;
}

constexpr int kStripBytes = 1 << 16;

struct Target {
  std::string bytes;
  size_t offset = 0;
};

Target& target_of(thandle_t handle) { return *static_cast<Target*>(handle); }

tmsize_t read_bytes(thandle_t handle, void* buffer, tmsize_t count) {
  Target& target = target_of(handle);
  const size_t left =
      target.bytes.size() - std::min(target.offset, target.bytes.size());
  const size_t got = std::min(left, static_cast<size_t>(count));
  std::memcpy(buffer, target.bytes.data() + target.offset, got);
  target.offset += got;
  return static_cast<tmsize_t>(got);
}

tmsize_t write_bytes(thandle_t handle, void* buffer, tmsize_t count) {
  Target& target = target_of(handle);
  const size_t end = target.offset + static_cast<size_t>(count);
  if (target.bytes.size() < end) target.bytes.resize(end);
  std::memcpy(target.bytes.data() + target.offset, buffer,
              static_cast<size_t>(count));
  target.offset = end;
  return count;
}

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  Target& target = target_of(handle);
  if (whence == SEEK_CUR) offset += target.offset;
  if (whence == SEEK_END) offset += target.bytes.size();
  return target.offset = offset;
}

int close_target(thandle_t) { return 0; }

toff_t size_of(thandle_t handle) { return target_of(handle).bytes.size(); }

struct Close {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

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

std::string encode_jpeg(const cv::Mat& pixels, int quality) {
  JpegWriter writer;
  writer.info.err = jpeg_std_error(&writer.error);
  writer.info.client_data = &writer;
  writer.error.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<JpegWriter*>(info->client_data)->jump, 1);
  };
  HEADROOM_CHECK(guarded_compress(writer, pixels, quality),
                 "libjpeg refused a picture");
  return {reinterpret_cast<const char*>(writer.bytes), writer.size};
}

std::string encode_tiff_bytes(const cv::Mat& pixels, const GeoTags* place) {
  Target target;
  const std::unique_ptr<TIFF, Close> tiff(
      TIFFClientOpen("tile", "wl", &target, read_bytes, write_bytes, seek,
                     close_target, size_of, nullptr, nullptr));
  HEADROOM_CHECK(tiff != nullptr, "libtiff opens no file in memory");
  const int bands = pixels.channels();
  const bool is_rgb = bands >= kColours;
  const int row_bytes = pixels.cols * static_cast<int>(pixels.elemSize());
  TIFFSetField(tiff.get(), TIFFTAG_IMAGEWIDTH, pixels.cols);
  TIFFSetField(tiff.get(), TIFFTAG_IMAGELENGTH, pixels.rows);
  TIFFSetField(tiff.get(), TIFFTAG_SAMPLESPERPIXEL, bands);
  TIFFSetField(tiff.get(), TIFFTAG_BITSPERSAMPLE,
               static_cast<int>(8 * pixels.elemSize1()));
  TIFFSetField(tiff.get(), TIFFTAG_PHOTOMETRIC,
               is_rgb ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK);
  TIFFSetField(tiff.get(), TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(tiff.get(), TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE);
  const bool is_floating = pixels.depth() == CV_32F;
  TIFFSetField(tiff.get(), TIFFTAG_PREDICTOR,
               is_floating ? PREDICTOR_FLOATINGPOINT : PREDICTOR_HORIZONTAL);
  if (is_floating || pixels.depth() == CV_16S) {
    TIFFSetField(tiff.get(), TIFFTAG_SAMPLEFORMAT,
                 is_floating ? SAMPLEFORMAT_IEEEFP : SAMPLEFORMAT_INT);
  }
  TIFFSetField(tiff.get(), TIFFTAG_ROWSPERSTRIP,
               std::max(1, kStripBytes / row_bytes));
  const std::vector<uint16_t> extra(
      static_cast<size_t>(bands - (is_rgb ? kColours : 1)),
      EXTRASAMPLE_UNSPECIFIED);
  if (!extra.empty()) {
    TIFFSetField(tiff.get(), TIFFTAG_EXTRASAMPLES,
                 static_cast<int>(extra.size()), extra.data());
  }
  if (place != nullptr) set_geo_tags(tiff.get(), *place);
  // libtiff modifies the buffer that it writes, so it gets a copy.
  std::vector<uint8_t> row(static_cast<size_t>(row_bytes));
  for (int y = 0; y < pixels.rows; ++y) {
    std::memcpy(row.data(), pixels.ptr(y), row.size());
    HEADROOM_CHECK(TIFFWriteScanline(tiff.get(), row.data(),
                                     static_cast<uint32_t>(y), 0) == 1,
                   "libtiff writes no row into memory");
  }
  HEADROOM_CHECK(TIFFFlush(tiff.get()) == 1, "libtiff ends no file in memory");
  return target.bytes;
}

}  // namespace headroom::codecs
