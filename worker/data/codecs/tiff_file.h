// Opens a TIFF or BigTIFF through libtiff and reads its header.
//
// Messages go to the open file's own handlers, because libtiff's global ones
// are shared by all threads. Errors: throws ImageRefusal.
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
  std::string error;  // the first error that libtiff reported
  bool reading_pixels = false;
  std::vector<uint8_t> bytes;  // the whole file if libtiff needs it mapped
};

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using TiffHandle = std::unique_ptr<TIFF, CloseTiff>;

// An open file together with the source that libtiff points to.
struct OpenTiff {
  TiffSource source;
  TiffHandle tiff;
};

// Opens the page that the file's name asks for. Reads the whole file into
// memory only if libtiff needs it mapped.
std::unique_ptr<OpenTiff> open_tiff(ImageFile& file, const ImageLimits& limits);

// Opens the page to read its header only; never reads the whole file.
std::unique_ptr<OpenTiff> open_tiff_header(ImageFile& file,
                                           const ImageLimits& limits);

// The size, checked against the limits, and the orientation.
ImageHeader tiff_header(TIFF* tiff, const ImageLimits& limits);

// The number of rows that libtiff decodes together: the rows of a strip or a
// tile.
int64_t tiff_chunk_rows(TIFF* tiff, int64_t height);

[[noreturn]] void refuse_tiff(const std::string& message);

}  // namespace headroom::codecs
