// Pictures as files of each format, in the forms that decoders treat
// separately.
#pragma once

#include <tiffio.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <opencv2/core/mat.hpp>
#include <string>

namespace headroom {

struct JpegForm {
  int quality = 80;
  int components = 3;  // 1: gray, 4: CMYK
  int across = 2;      // pixels that share a colour
  int down = 2;
  bool progressive = false;
  // Number of scans of a progressive JPEG. The first scan has the DC
  // coefficients; each later one has one AC coefficient. 0 writes an ordinary
  // file of one scan.
  int scans = 0;
  bool arithmetic = false;
  unsigned restart_rows = 0;  // between restart markers; 0: no markers
  int orientation = 1;        // EXIF
};
std::string encode_jpeg(const cv::Mat& rgb, const JpegForm& form);

// Every combination of colour sampling, number of components and coding. The
// key is a name for messages.
std::map<std::string, JpegForm> jpeg_forms();

struct PngForm {
  bool interlaced = false;
  bool has_alpha = false;
  int orientation = 1;
};
std::string encode_png(const cv::Mat& rgb, const PngForm& form = {});

std::string encode_webp(const cv::Mat& rgb, bool lossless = true);

struct TiffForm {
  uint16_t compression = COMPRESSION_NONE;
  uint16_t orientation = ORIENTATION_TOPLEFT;
  bool tiled = false;
  bool planar = false;  // plane after plane
  bool big = false;
  // 0 means RGB for three channels, and MINISBLACK otherwise. PHOTOMETRIC_YCBCR
  // writes luma, and chroma at a quarter of the resolution, and works only for
  // strips.
  uint16_t photometric = 0;
  // The meaning of the last samples; EXTRASAMPLE_UNSPECIFIED is not written.
  uint16_t extra = EXTRASAMPLE_UNSPECIFIED;
  uint16_t format = SAMPLEFORMAT_UINT;
  bool appended = false;  // a further page of an existing file
  uint32_t kind = 0;      // TIFFTAG_SUBFILETYPE
};
// `pixels` has 8, 16 or 32 bits and any number of channels.
void write_tiff(const std::filesystem::path& file, const cv::Mat& pixels,
                const TiffForm& form = {});
std::string encode_tiff(const cv::Mat& pixels, const TiffForm& form = {});

// The picture in every format and coding that decoders treat separately. The
// key is a name for messages.
std::map<std::string, std::string> encodings(const cv::Mat& rgb);

// The picture in 16 bits: each value times 257, so that 255 becomes 65,535.
cv::Mat times_257(const cv::Mat& pixels);

// A picture of `bands` bands. Band b is channel b % 3 of test_picture(); every
// three bands have another seed, from `seed` on.
cv::Mat test_bands(int height, int width, int bands, uint64_t seed);

}  // namespace headroom
