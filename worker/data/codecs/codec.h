// Codec: what image.cpp needs from one image format. One file per format
// implements it, and alone includes the headers of its library.
//
// A decoder throws ImageRefusal, and leaves nothing allocated. It does not
// apply the orientation, which image.cpp does for all formats. It keeps the
// wanted rows or more, and refuses the same damage whichever rows are wanted:
// ranks that share an image must agree on whether it is sound.
#pragma once

#include <cstdint>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <span>

#include "worker/data/codecs/image.h"

namespace headroom::codecs {

struct ImageHeader {
  int64_t height = 0;
  int64_t width = 0;
  int orientation = 1;  // EXIF: 1..8
};

struct RawImage {
  ImageHeader header;
  PixelRows kept;  // rows of the image as stored
  cv::Mat pixels;  // those rows; RGB, or the bands of a TIFF
};

class ScanlineReader;

struct Codec {
  const char* name;
  // `head`: the first kCodecHeadBytes of the file, fewer if it is shorter.
  bool (*matches)(std::span<const uint8_t> head);
  ImageHeader (*read_header)(ImageFile& file, const ImageLimits& limits);
  // `wanted`: rows of the upright image.
  RawImage (*decode)(ImageFile& file, const ImageLimits& limits,
                     PixelRows wanted);
  // Cheap: does the file end as files of this format do? If not it is decoded
  // for its verdict.
  bool (*ends_well)(ImageFile& file);
  // Reads nothing but headers; `file` has to outlive it (scanline_reader.h).
  std::unique_ptr<ScanlineReader> (*open_rows)(ImageFile& file,
                                               const ImageLimits& limits);
};
inline constexpr int64_t kCodecHeadBytes = 32;

extern const Codec kJpegCodec;
extern const Codec kPngCodec;
extern const Codec kBmpCodec;
extern const Codec kTiffCodec;
extern const Codec kWebpCodec;

// The samples of a TIFF; all other formats have colours.
ImageSamples tiff_samples(ImageFile& file, const ImageLimits& limits);

// The page of a TIFF that shows the whole picture smaller: the smallest whose
// longer side has `longest` pixels or more; 0 where there is none, or where the
// file's name asks for a page.
int tiff_overview(ImageFile& file, const ImageLimits& limits, int64_t longest);

// Throws ImageRefusal unless 0 < width, 0 < height and width x height is within
// the limit. To be called before anything is allocated by size.
void check_pixels(int64_t width, int64_t height, const ImageLimits& limits);

// The rows as stored that make rows `wanted` of the upright image, with room
// for their pixels: all where the orientation swaps the axes.
RawImage allocate_rows(const ImageHeader& header, PixelRows wanted,
                       int type = CV_8UC3);

}  // namespace headroom::codecs
