// ScanlineReader: reads the rows of an image file one after another, so that a
// picture too large for memory can be cut into parts. Each codec implements it.
//
//   JPEG             row by row; progressive files hold all coefficients
//   TIFF             a strip or a row of tiles at a time
//   PNG, BMP         row by row; interlaced PNG whole
//   WebP             whole
//
// A picture that has to be held whole is refused above ImageLimits::max_pixels,
// others only above kMaxStreamedPixels. Rows are returned in stored order: the
// caller applies the orientation.
//
// PNG, and gray or RGB TIFF, keep 16 bits; all other files are read with 8.
// Colours become RGB. Gray PNG and 16-bit gray TIFF keep one channel. Alpha is
// dropped. If the limits ask for bands (ImageLimits::bands), the bands are kept
// with 8 or 16 bits. Signed 16 bits and float32 are read from TIFFs if the
// limits accept any samples. If the limits give ranges, rows are levels
// (level_reader.h).
//
// Errors: throws ImageRefusal, which read_image_rows turns into a reason.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <opencv2/core/mat.hpp>
#include <string>
#include <utility>

#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/image.h"

namespace headroom::codecs {

inline constexpr int64_t kMaxStreamedPixels = int64_t{1} << 36;
inline constexpr int64_t kMaxStreamedFileBytes = int64_t{1} << 40;

class ScanlineReader {
 public:
  ScanlineReader(const ImageHeader& header, int type)
      : header_(header), type_(type) {}
  virtual ~ScanlineReader() = default;
  ScanlineReader(const ScanlineReader&) = delete;
  ScanlineReader& operator=(const ScanlineReader&) = delete;

  // Size as stored, before the orientation is applied.
  const ImageHeader& header() const { return header_; }
  // CV_8U, CV_16U, CV_16S or CV_32F, with the number of channels.
  int type() const { return type_; }

  // Reads the next rows.rows rows. REQUIRES: `rows` has the picture's width and
  // type(), and the file has that many rows left.
  virtual void read(cv::Mat& rows) = 0;

  // Skips the next `rows` rows. Damage in them is still found.
  virtual void skip(int64_t rows);

  // Skips the next `rows` rows without checking them for damage. They are not
  // decoded if the format allows that.
  virtual void pass(int64_t rows) { skip(rows); }

  // Throws ImageRefusal if the file is damaged after its last row. REQUIRES: no
  // row is left.
  virtual void finish() {}

 private:
  ImageHeader header_;
  int type_;
};

// For formats that can only be decoded whole: decodes the picture when the
// first row is read.
class WholeRows : public ScanlineReader {
 public:
  WholeRows(const ImageHeader& header, std::function<RawImage()> decode)
      : ScanlineReader(header, CV_8UC3), decode_(std::move(decode)) {}
  void read(cv::Mat& rows) override;

 private:
  std::function<RawImage()> decode_;
  cv::Mat pixels_;
  int next_ = 0;
};

// Raises the pixel limit in `limits` for a reader that works row by row.
ImageLimits streamed(ImageLimits limits);

// Throws ImageRefusal if `bytes`, the length of a file that has to be read
// whole, is above the limit.
void check_held_file(int64_t bytes, const ImageLimits& limits);

// Opens a file and calls `use` with its rows; `use` may leave rows unread.
// Returns why the file is refused, or "" if it is sound. Exceptions of `use`
// other than refusals are passed on.
std::string read_image_rows(const std::filesystem::path& file,
                            const ImageLimits& limits,
                            const std::function<void(ScanlineReader&)>& use);

// tiff_overview() of any file; 0 if it is not a TIFF or is refused.
int overview_page(const std::filesystem::path& file, const ImageLimits& limits,
                  int64_t longest);

// Properties of a file that are read from its headers alone. A file that
// read_image_rows refuses because of its headers is refused here too.
struct StreamedImage {
  ImageSize size;  // size of the upright image
  bool is_jpeg = false;
  bool is_upright = true;  // whether pixels are stored upright
  bool has_alpha = false;  // whether a TIFF has samples marked alpha
  std::string reason;
  bool ok() const { return reason.empty(); }
};
StreamedImage inspect_streamed(const std::filesystem::path& file,
                               const ImageLimits& limits = {});

}  // namespace headroom::codecs
