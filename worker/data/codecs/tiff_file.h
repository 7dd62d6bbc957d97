// A TIFF or BigTIFF opened through libtiff: its header, its parts.
//
// Messages go to the open file's own handlers, because libtiff's global ones
// are shared by all threads. Errors: ImageRefusal.
#pragma once

#include <tiffio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/codecs/codec.h"

namespace headroom::codecs {

struct TiffSource {
  ImageFile* file = nullptr;
  int64_t offset = 0;
  std::string error;  // the first
  bool reading_pixels = false;
  std::vector<uint8_t> bytes;  // all of the file, if libtiff is to have it so
};

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using TiffHandle = std::unique_ptr<TIFF, CloseTiff>;

// An open file with what libtiff refers to.
struct OpenTiff {
  TiffSource source;
  TiffHandle tiff;
};

// Reads the directory of the page that the file's name asks for; the file as a
// whole only where libtiff wants it so.
std::unique_ptr<OpenTiff> open_tiff(ImageFile& file, const ImageLimits& limits);

// The same for its header alone.
std::unique_ptr<OpenTiff> open_tiff_header(ImageFile& file,
                                           const ImageLimits& limits);

// Size, checked against the limits, and orientation.
ImageHeader tiff_header(TIFF* tiff, const ImageLimits& limits);

// Rows that libtiff decodes together: of a strip or a tile.
int64_t tiff_chunk_rows(TIFF* tiff, int64_t height);

[[noreturn]] void refuse_tiff(const std::string& message);

}  // namespace headroom::codecs
