#include "worker/data/codecs/tiff_bytes.h"

#include <tiffio.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "parallel/base/check.h"
#include "worker/data/codecs/image_bands.h"

namespace headroom::codecs {
namespace {

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

std::string encode_tiff_bytes(const cv::Mat& pixels) {
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
  TIFFSetField(tiff.get(), TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
  TIFFSetField(tiff.get(), TIFFTAG_ROWSPERSTRIP,
               std::max(1, kStripBytes / row_bytes));
  const std::vector<uint16_t> extra(
      static_cast<size_t>(bands - (is_rgb ? kColours : 1)),
      EXTRASAMPLE_UNSPECIFIED);
  if (!extra.empty()) {
    TIFFSetField(tiff.get(), TIFFTAG_EXTRASAMPLES,
                 static_cast<int>(extra.size()), extra.data());
  }
  // libtiff changes what it is given to write.
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
