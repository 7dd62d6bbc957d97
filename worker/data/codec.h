// Codec: what image.cpp needs of one image format. One file per format
// implements it; the headers of its library stay there.
//
// A decoder throws ImageRefusal, and leaves nothing allocated. It does not
// apply the orientation: image.cpp does, for all formats.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <span>

#include "worker/data/image.h"
#include "worker/data/image_file.h"

namespace headroom {

struct ImageHeader {
  int64_t height = 0;
  int64_t width = 0;
  int orientation = 1;  // EXIF: 1..8
};

struct RawImage {
  cv::Mat pixels;  // CV_8UC3, RGB
  int orientation = 1;
};

struct Codec {
  const char* name;
  // `head`: the first kCodecHeadBytes of the file, fewer if it is shorter.
  bool (*matches)(std::span<const uint8_t> head);
  ImageHeader (*read_header)(ImageFile& file, const ImageLimits& limits);
  RawImage (*decode)(ImageFile& file, const ImageLimits& limits);
  // Cheap: does the file end as files of this format do? If not it is decoded
  // for its verdict.
  bool (*ends_well)(ImageFile& file);
};
inline constexpr int64_t kCodecHeadBytes = 32;

extern const Codec kJpegCodec;
extern const Codec kPngCodec;
extern const Codec kBmpCodec;
extern const Codec kTiffCodec;
extern const Codec kWebpCodec;

// Throws ImageRefusal unless 0 < width, 0 < height and width x height is within
// the limit. To be called before anything is allocated by size.
void check_pixels(int64_t width, int64_t height, const ImageLimits& limits);

}  // namespace headroom
