// The samples of a TIFF as they are: bands of 8 or 16 bits, side by side or
// plane after plane, in strips or tiles.
//
//   samples of a pixel                 bands     with ch 3 or 1   as they come
//   gray; gray and another one         1, 2      gray             1, 2
//   three that are not called RGB      3         these three      3
//   RGB; RGB and alpha                 3         RGB              RGB
//   RGB and one that is not alpha      4         RGB              4
//   more                               all       refused          all
//
// Samples that the file calls alpha are counted only where `ch` asks for as
// many. Palettes, CMYK, YCbCr and Lab are colours: libtiff makes RGB of them.
#pragma once

#include <tiffio.h>

#include <cstdint>
#include <memory>
#include <opencv2/core/mat.hpp>

#include "worker/data/codecs/codec.h"

namespace headroom::codecs {

struct TiffLayout {
  int samples = 1;  // of a pixel
  int alphas = 0;   // of them, at the end
  int bits = 1;     // of a sample
  bool is_rgb = false;
  bool is_plain = false;  // gray or RGB, black at 0
  bool is_unsigned = true;
  bool is_planar = false;

  int bands() const { return samples - alphas; }
  bool has_whole_samples() const {
    return is_unsigned && (bits == 8 || bits == 16);
  }
};
TiffLayout tiff_layout(TIFF* tiff);

// How many samples of a pixel are to be read as they are; 0: colours are.
// Throws ImageRefusal where the file has not what is wanted
// (ImageLimits::bands).
int tiff_bands(const TiffLayout& layout, int wanted);

// May colours be made of them, as tiff_bands(layout, kColours) does?
bool reads_as_colours(const TiffLayout& layout);

class TiffBandReader {
 public:
  // The first `bands` samples of each pixel. Throws ImageRefusal where a strip
  // or tile is larger than the limits allow. REQUIRES: has_whole_samples(), and
  // that the layout has so many.
  TiffBandReader(TIFF* tiff, const TiffLayout& layout,
                 const ImageHeader& header, int bands,
                 const ImageLimits& limits);

  // With as many bits as in the file.
  int type() const {
    return CV_MAKETYPE(layout_.bits == 8 ? CV_8U : CV_16U, bands_);
  }

  // The rows of the strip, or of the row of tiles, that begins at `first_row`.
  // False: libtiff cannot. REQUIRES: the picture's width, type(), and all rows
  // that the strip or tiles have.
  bool read(int64_t first_row, cv::Mat& rows);

 private:
  void check_stored(uint32_t part, int64_t wanted) const;
  bool read_plane(int plane, int64_t first_row, cv::Mat& rows);
  void take(const uint8_t* stored, int plane, uint8_t* target,
            int64_t columns) const;

  TIFF* tiff_;
  TiffLayout layout_;
  int64_t width_;
  int bands_;
  int64_t part_width_ = 0;  // of a tile or the picture
  int64_t part_bytes_ = 0;
  std::unique_ptr<uint8_t[]> part_;  // resident where it is read into
};

// 16 bits to 8, as libtiff's RGBA has them. REQUIRES: equal sizes and bands.
void narrow_samples(const cv::Mat& wide, cv::Mat& narrow);

}  // namespace headroom::codecs
