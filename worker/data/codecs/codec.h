// Codec: the functions that image.cpp needs for one image format. Each format
// implements it in one file, and only that file includes the headers of the
// format's library.
//
// A decoder throws ImageRefusal for a bad file and frees everything it
// allocated. It does not apply the orientation; image.cpp does that for all
// formats. It may keep more rows than requested. It refuses a damaged file
// whichever rows are requested, because ranks that share an image must agree on
// whether the image is sound.
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
  PixelRows kept;  // range of rows in stored order
  cv::Mat pixels;  // pixels of the kept rows: RGB, or a TIFF's bands
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
  // A cheap test: whether the end of the file looks complete. If it does not,
  // the caller decodes the file to find out whether it is damaged.
  bool (*ends_well)(ImageFile& file);
  // Opening reads only headers. `file` must outlive the returned reader.
  std::unique_ptr<ScanlineReader> (*open_rows)(ImageFile& file,
                                               const ImageLimits& limits);
};
inline constexpr int64_t kCodecHeadBytes = 32;

extern const Codec kJpegCodec;
extern const Codec kPngCodec;
extern const Codec kBmpCodec;
extern const Codec kTiffCodec;
extern const Codec kWebpCodec;

// Returns the number and kind of a TIFF's samples. Files of all other formats
// have colours.
ImageSamples tiff_samples(ImageFile& file, const ImageLimits& limits);

// Looks for a page of a TIFF that shows the whole picture at a smaller size.
// Returns the number of the smallest such page whose longer side has at least
// `longest` pixels, or 0 if there is none or the file's name asks for a page.
int tiff_overview(ImageFile& file, const ImageLimits& limits, int64_t longest);

// Throws ImageRefusal unless width and height are positive and their product is
// within the limit. Call it before allocating memory for the pixels.
void check_pixels(int64_t width, int64_t height, const ImageLimits& limits);

// Allocates pixels for the stored rows that make up rows `wanted` of the
// upright image. If the orientation swaps the axes, the result has all rows.
RawImage allocate_rows(const ImageHeader& header, PixelRows wanted,
                       int type = CV_8UC3);

}  // namespace headroom::codecs
