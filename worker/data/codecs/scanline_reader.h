// ScanlineReader: the rows of an image file one after another, so that a
// picture too large to be held can be cut into parts. Implemented beside each
// codec.
//
//   JPEG             as coded, row by row; progressive ones hold coefficients
//   TIFF             a strip or a row of tiles at a time
//   PNG, BMP         row by row; interlaced PNG as a whole
//   WebP             as a whole
//
// What has to be held as a whole is refused above ImageLimits::max_pixels, what
// is not only above kMaxStreamedPixels. Rows come as they are stored: the
// orientation is the caller's business.
//
// 16 bits stay 16 in PNG, and in TIFF of gray or RGB samples; everything else
// has 8. Colours become RGB; gray PNG and 16-bit gray TIFF keep one channel;
// alpha is dropped. Bands (ImageLimits::bands) stay bands, of 8 or 16 bits.
// Signed 16 bits and float32 are read from TIFFs where limits take any samples;
// with ranges, rows are levels (level_reader.h).
//
// Errors: ImageRefusal, which read_image_rows turns into a reason.
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

  // The picture as stored.
  const ImageHeader& header() const { return header_; }
  // CV_8U, CV_16U, CV_16S or CV_32F, with channels as above.
  int type() const { return type_; }

  // The next rows.rows rows. REQUIRES: the picture's width, type(), and so many
  // rows left.
  virtual void read(cv::Mat& rows) = 0;

  // Skips that many rows; damage in them is found all the same.
  virtual void skip(int64_t rows);

  // Skips that many rows without looking for damage, undecoded where possible.
  virtual void pass(int64_t rows) { skip(rows); }

  // Says what the file's end says, after the last row. REQUIRES: no row is
  // left.
  virtual void finish() {}

 private:
  ImageHeader header_;
  int type_;
};

// Formats without parts: decoded when the first row is asked for.
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

// `limits` for a reader that goes row by row.
ImageLimits streamed(ImageLimits limits);

// Throws ImageRefusal if a file of that length is to be held whole, and may
// not.
void check_held_file(int64_t bytes, const ImageLimits& limits);

// Opens a file and hands its rows to `use`, which may leave rows unread.
// Returns why the file is refused, "" if it is sound. What `use` throws passes.
std::string read_image_rows(const std::filesystem::path& file,
                            const ImageLimits& limits,
                            const std::function<void(ScanlineReader&)>& use);

// tiff_overview() of any file; 0 where it is no TIFF, or is refused.
int overview_page(const std::filesystem::path& file, const ImageLimits& limits,
                  int64_t longest);

// What headers say; refused is what read_image_rows would refuse by them.
struct StreamedImage {
  ImageSize size;  // upright
  bool is_jpeg = false;
  bool is_upright = true;  // Its pixels are stored as they are seen.
  bool has_alpha = false;  // a TIFF whose pixels have samples called so
  std::string reason;
  bool ok() const { return reason.empty(); }
};
StreamedImage inspect_streamed(const std::filesystem::path& file,
                               const ImageLimits& limits = {});

}  // namespace headroom::codecs
