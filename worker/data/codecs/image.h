// Image files to RGB pixels: JPEG, PNG, BMP, TIFF, WebP.
//
// The content decides which decoder reads a file, never its name. What comes
// out is 8-bit RGB with the EXIF orientation applied, to pixels and size
// alike. Gray is repeated, alpha is dropped, 16 bits are reduced to 8, and the
// first picture of an animation or multi-page file is taken, or the page of a
// TIFF that the name asks for. Where another number of bands is wanted, a
// TIFF's samples are kept (tiff.cpp); where a range of values is, what comes out
// has 16 bits (level_reader.h).
//
// A file is refused, with a reason, when it is damaged (truncated, corrupt
// data, as its library reports them), foreign, or larger than the limits.
// Sizes are checked before anything is allocated for them, and a file too
// short to hold the pixels it claims is refused by its header.
//
// Rows of a picture cost their own memory where the format allows it: JPEG,
// PNG, BMP and TIFF. The file is read through to its end all the same, so that
// the verdict on it does not depend on the rows that were asked for. (README,
// "Rows of an image".)
//
// Errors: a bad file is a result with a reason; nothing is thrown for it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <opencv2/core/mat.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/value_range.h"

namespace headroom::codecs {

// ImageFile: a file open for reading, for decoders that read as they go; also
// one in a pack (packs/packed_file.h), which is then held whole. They refuse a
// file by throwing ImageRefusal, which image.cpp catches.

class ImageRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A TIFF's page is named behind its file and counted from 1: stack.tif#3.
bool names_page(std::string_view image);
struct ImagePage {
  std::string file;
  int page = 0;  // 0: none is named
};
ImagePage image_page(const std::filesystem::path& image);

class ImageFile {
 public:
  // Throws ImageRefusal: missing, not a regular file, empty, longer than
  // `max_bytes`.
  ImageFile(const std::filesystem::path& file, int64_t max_bytes);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;

  int64_t size() const { return size_; }
  // The page that the name asks for; 0: none.
  int page() const { return page_; }

  // Fills `buffer` from `offset` on; fewer bytes only where the file ends or
  // cannot be read. Never throws: C libraries call it.
  size_t read_at(int64_t offset, std::span<uint8_t> buffer) noexcept;

  // All of it. Throws ImageRefusal if it cannot be read.
  std::vector<uint8_t> read_all();

 private:
  int descriptor_ = -1;
  std::vector<uint8_t> held_;  // all of a file that lies in a pack
  int64_t size_ = 0;
  int page_ = 0;
};

struct ImageSize {
  int32_t height = 0;
  int32_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

// Rows [begin, end) of a picture.
struct PixelRows {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const PixelRows&) const = default;
};
inline constexpr PixelRows kAllRows{0, INT64_MAX};

// The rows within a picture of that height; an empty range lies at its edge.
PixelRows clamp_rows(PixelRows rows, int64_t height);

// The same rows of the picture upside down.
inline PixelRows mirror_rows(PixelRows rows, int64_t height) {
  return {height - rows.end, height - rows.begin};
}

inline constexpr int kColours = 3;   // red, green, blue
inline constexpr int kAnyBands = 0;  // colours, or a file's own bands

// What a file may cost, and what it has to have.
struct ImageLimits {
  int64_t max_pixels = 178'956'970;  // Pillow, and so YOLOv5, refuses more
  int64_t max_file_bytes = 1LL << 30;
  int max_jpeg_scans = 100;  // a crafted file of 1 MB can cost half a minute
  // Bands of a pixel: kColours, which are made of whatever is there, another
  // number, or kAnyBands.
  int bands = kColours;
  // The values that become level 0 and kMostLevel of 16 bits; none: 8 bits.
  ValueRanges ranges = {};
  // Rows come with the samples that the file has, floating ones too.
  bool as_stored = false;

  // The type of pixels. REQUIRES: bands != kAnyBands.
  int type() const {
    return CV_MAKETYPE(ranges.empty() ? CV_8U : CV_16U, bands);
  }
  // May samples be other than 8 or 16 unsigned bits?
  bool takes_any_samples() const { return as_stored || !ranges.empty(); }
};

inline constexpr int kMostLevel = 65'535;

// What the pixels of a file are made of, apart from any wish.
struct ImageSamples {
  int bands = kColours;     // the number that kAnyBands gives
  int with_alpha = 0;       // samples that a TIFF calls alpha: all
  bool are_colours = true;  // a model of ch 3 or 1 takes them
  auto operator<=>(const ImageSamples&) const = default;
};

struct ImageResult {
  // RGB, or bands, of ImageLimits::type(); continuous; empty if refused.
  cv::Mat pixels;
  ImageSize size;      // the whole image's, whatever rows `pixels` holds
  std::string reason;  // why refused; empty if not
  bool ok() const { return reason.empty(); }
};

struct ImageSizeResult {
  ImageSize size;
  std::string reason;
  bool ok() const { return reason.empty(); }
};

ImageResult decode_image(const std::filesystem::path& file,
                         const ImageLimits& limits = {});

// The given rows of the same picture, as far as it has them.
ImageResult decode_rows(const std::filesystem::path& file, PixelRows rows,
                        const ImageLimits& limits = {});

// Reads the header alone. REQUIRES: the file can be decoded.
ImageSamples read_samples(const std::filesystem::path& file);

// Has a sample of the file more than 8 bits? False where nothing reads it.
bool has_deep_samples(const std::filesystem::path& file);

// Reads the header alone: the data may still turn out to be damaged.
ImageSizeResult read_image_size(const std::filesystem::path& file,
                                const ImageLimits& limits = {});

// Does what read_image_size does, but reads a file whose end looks cut off
// through for its verdict.
ImageSizeResult inspect_image(const std::filesystem::path& file,
                              const ImageLimits& limits = {});

}  // namespace headroom::codecs
