// Image files to RGB pixels: JPEG, PNG, BMP, TIFF, WebP.
//
// The decoder is chosen by the content of a file, never by its name. The result
// is 8-bit RGB with the EXIF orientation applied, to pixels and size alike.
// Gray is repeated, alpha is dropped, and 16 bits are reduced to 8. Of an
// animation or a multi-page file, the first picture is read, or the page of a
// TIFF that the name asks for. If ImageLimits::bands is not kColours, a TIFF's
// samples are kept (tiff.cpp). If a range of values is given, the result has 16
// bits (level_reader.h).
//
// A file is refused, with a reason, if it is damaged (truncated, or corrupt
// according to its library), not an image, or larger than the limits. Sizes are
// checked before anything is allocated for them, and a file that is too short
// for the pixels its header claims is refused after reading the header.
//
// Decoding a range of rows needs memory only for these rows, in JPEG, PNG, BMP
// and TIFF. The file is still read to its end, so that the decision whether it
// is damaged does not depend on the requested rows.
//
// Errors: a bad file gives a result with a reason, not an exception.
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

// ImageFile: a file open for reading, for decoders that read step by step. A
// file in a pack (packs/packed_file.h) is read into memory whole. Decoders
// refuse a file by throwing ImageRefusal, which image.cpp catches.

class ImageRefusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether the name asks for a page: "stack.tif#3". Pages count from 1.
bool names_page(std::string_view image);
struct ImagePage {
  std::string file;
  int page = 0;  // 0 if the name contains no page
};
ImagePage image_page(const std::filesystem::path& image);

class ImageFile {
 public:
  // Throws ImageRefusal if the file is missing, not a regular file, empty, or
  // longer than `max_bytes`.
  ImageFile(const std::filesystem::path& file, int64_t max_bytes);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;

  int64_t size() const { return size_; }
  // The page that the name asks for; 0 if the name contains no page.
  int page() const { return page_; }

  // Reads into `buffer` from `offset` on and returns the number of bytes read.
  // That number is smaller than the buffer only if the file ends or cannot be
  // read. Never throws, because C libraries call it.
  size_t read_at(int64_t offset, std::span<uint8_t> buffer) noexcept;

  // The whole content. Throws ImageRefusal if it cannot be read.
  std::vector<uint8_t> read_all();

 private:
  int descriptor_ = -1;
  std::vector<uint8_t> held_;  // the whole content of a file in a pack
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

// Limits `rows` to the rows of a picture with height `height`. An empty range
// becomes an empty range at the picture's edge.
PixelRows clamp_rows(PixelRows rows, int64_t height);

// Returns where `rows` are after the picture is turned upside down.
inline PixelRows mirror_rows(PixelRows rows, int64_t height) {
  return {height - rows.end, height - rows.begin};
}

inline constexpr int kColours = 3;   // red, green, blue
inline constexpr int kAnyBands = 0;  // colours, or a file's own bands

// Limits on the cost of a file, and the form in which its pixels are wanted.
struct ImageLimits {
  int64_t max_pixels = 178'956'970;  // limit of Pillow, which YOLOv5 uses
  int64_t max_file_bytes = 1LL << 30;
  int max_jpeg_scans = 100;  // with more, a crafted 1 MB file takes 30 s
  // The wanted number of bands of a pixel: kColours (every picture is converted
  // to RGB), another number, or kAnyBands.
  int bands = kColours;
  // The values that become level 0 and level kMostLevel of 16 bits. If empty,
  // pixels have 8 bits.
  ValueRanges ranges = {};
  // Whether samples keep the type that they have in the file, even a signed or
  // floating-point type.
  bool as_stored = false;

  // The type of pixels. REQUIRES: bands != kAnyBands.
  int type() const {
    return CV_MAKETYPE(ranges.empty() ? CV_8U : CV_16U, bands);
  }
  // Whether samples other than unsigned 8 and 16 bits are accepted.
  bool takes_any_samples() const { return as_stored || !ranges.empty(); }
};

inline constexpr int kMostLevel = 65'535;

// The number and kind of a file's samples, independent of ImageLimits.
struct ImageSamples {
  int bands = kColours;     // bands that are read with kAnyBands
  int with_alpha = 0;       // number of all samples if some are alpha, else 0
  bool are_colours = true;  // whether a model with ch 3 or 1 can use them
  auto operator<=>(const ImageSamples&) const = default;
};

struct ImageResult {
  // RGB, or bands, of ImageLimits::type(). Continuous. Empty if refused.
  cv::Mat pixels;
  ImageSize size;      // size of the whole image, not of `pixels`
  std::string reason;  // why the file was refused; empty if it was not
  bool ok() const { return reason.empty(); }
};

struct ImageSizeResult {
  ImageSize size;
  std::string reason;
  bool ok() const { return reason.empty(); }
};

ImageResult decode_image(const std::filesystem::path& file,
                         const ImageLimits& limits = {});

// Decodes only rows `rows`. Rows beyond the picture are ignored.
ImageResult decode_rows(const std::filesystem::path& file, PixelRows rows,
                        const ImageLimits& limits = {});

// Reads only the header. REQUIRES: the file can be decoded.
ImageSamples read_samples(const std::filesystem::path& file);

// Whether the file has samples of more than 8 bits. Returns false if no decoder
// can read it.
bool has_deep_samples(const std::filesystem::path& file);

// Reads only the header: the pixel data may still be damaged.
ImageSizeResult read_image_size(const std::filesystem::path& file,
                                const ImageLimits& limits = {});

// How the stored pixels are turned (exif.h), read from the header; 1 if the
// file cannot be read.
int stored_orientation(const std::filesystem::path& file);

// As read_image_size, but if the file's end seems to be missing, decodes the
// file to check whether it is damaged.
ImageSizeResult inspect_image(const std::filesystem::path& file,
                              const ImageLimits& limits = {});

}  // namespace headroom::codecs
