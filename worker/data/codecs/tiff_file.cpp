#include "worker/data/codecs/tiff_file.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

TiffSource& source_of(void* handle) {
  return *static_cast<TiffSource*>(handle);
}

tmsize_t read_bytes(thandle_t handle, void* buffer, tmsize_t count) {
  TiffSource& source = source_of(handle);
  if (source.offset < 0 || count < 0) return 0;
  const size_t got = source.file->read_at(
      source.offset,
      {static_cast<uint8_t*>(buffer), static_cast<size_t>(count)});
  source.offset += static_cast<int64_t>(got);
  return static_cast<tmsize_t>(got);
}

tmsize_t write_bytes(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  TiffSource& source = source_of(handle);
  const auto delta = static_cast<int64_t>(offset);
  if (whence == SEEK_SET) source.offset = delta;
  if (whence == SEEK_CUR) source.offset += delta;
  if (whence == SEEK_END) source.offset = source.file->size() + delta;
  return static_cast<toff_t>(source.offset);
}

int close_source(thandle_t) { return 0; }

// Pretends to map the file by returning a copy in memory. A real mapping would
// crash the process if the file shrinks while it is read.
int map_bytes(thandle_t handle, void** base, toff_t* size) {
  std::vector<uint8_t>& bytes = source_of(handle).bytes;
  *base = bytes.data();
  *size = bytes.size();
  return bytes.empty() ? 0 : 1;
}

void unmap_bytes(thandle_t, void*, toff_t) {}

toff_t source_size(thandle_t handle) {
  return static_cast<toff_t>(source_of(handle).file->size());
}

void keep_first(TiffSource& source, const char* format, va_list arguments) {
  if (!source.error.empty()) return;
  std::array<char, 200> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  source.error = text.data();
}

int on_error(TIFF*, void* user, const char*, const char* format,
             va_list arguments) {
  keep_first(source_of(user), format, arguments);
  return 1;
}

// Warnings about unknown tags are harmless, but libjpeg's errors about damaged
// data arrive as warnings and must be kept.
int on_warning(TIFF*, void* user, const char* module, const char* format,
               va_list arguments) {
  TiffSource& source = source_of(user);
  if (source.reading_pixels && module != nullptr &&
      std::strcmp(module, "JPEGLib") == 0) {
    keep_first(source, format, arguments);
  }
  return 1;
}

// Common names of compressions for which libtiff has no codec.
std::string compression_name(uint16_t compression) {
  switch (compression) {
    case 33003:
    case 33005:
      return "Aperio's JPEG 2000";
    case COMPRESSION_JP2000:
      return "JPEG 2000";
    default:
      return cat("method ", compression);
  }
}

void check_compression(TIFF* tiff) {
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  if (TIFFIsCODECConfigured(compression) != 0) return;
  throw ImageRefusal("a TIFF compressed by " + compression_name(compression) +
                     ", which is not read: write it anew, for example with "
                     "vips or gdal_translate, as JPEG or deflate");
}

// Opens the page that the name asks for. Pages count from 1; 0 means the first.
void go_to_page(TIFF* tiff, const TiffSource& source) {
  const int page = source.file->page();
  if (page <= 1) return;
  if (TIFFSetDirectory(tiff, static_cast<tdir_t>(page - 1)) != 0) return;
  const int64_t pages = TIFFNumberOfDirectories(tiff);
  if (pages >= page) refuse_tiff(source.error);
  throw ImageRefusal(cat("there is no page ", page, ": the file has ",
                         counted(pages, "page")));
}

TiffHandle open_source(TiffSource& source, const ImageLimits& limits) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)>
      options(TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
  if (!options) throw ImageRefusal("no memory for libtiff");
  source.offset = 0;  // libtiff begins reading at the current position
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, &source);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), limits.max_pixels * 8);
  TiffHandle tiff(TIFFClientOpenExt("image", source.bytes.empty() ? "rm" : "r",
                                    &source, read_bytes, write_bytes, seek,
                                    close_source, source_size, map_bytes,
                                    unmap_bytes, options.get()));
  if (!tiff) refuse_tiff(source.error);
  go_to_page(tiff.get(), source);
  check_compression(tiff.get());
  return tiff;
}

// libtiff 4.5 compares the size of an uncompressed tile with the size of its
// read buffer, which it rounds up to 1 KiB unless the file is mapped. Without
// mapping it would refuse sound files.
bool has_to_be_mapped(TIFF* tiff) {
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  return TIFFIsTiled(tiff) != 0 && compression == COMPRESSION_NONE &&
         TIFFTileSize(tiff) % 1024 != 0;
}

// The tags that an overview must share with the picture.
std::array<uint16_t, 3> sample_tags(TIFF* tiff) {
  std::array<uint16_t, 3> tags{1, 1, SAMPLEFORMAT_UINT};
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &tags[0]);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &tags[1]);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &tags[2]);
  return tags;
}

// Returns whether both pictures have the same orientation and the same aspect
// ratio, except that the sides of an overview are rounded to whole pixels.
bool has_shape_of(const ImageHeader& small, const ImageHeader& whole) {
  const auto product = [](int64_t a, int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  return small.orientation == whole.orientation &&
         std::abs(product(small.height, whole.width) -
                  product(small.width, whole.height)) <=
             static_cast<double>(std::max(whole.height, whole.width));
}

// The header of the current page; nullopt if its sizes are not valid.
std::optional<ImageHeader> header_if_sound(TIFF* tiff,
                                           const ImageLimits& limits) {
  try {
    return tiff_header(tiff, limits);
  } catch (const ImageRefusal&) {
    return std::nullopt;
  }
}

}  // namespace

int tiff_overview(ImageFile& file, const ImageLimits& limits, int64_t longest) {
  constexpr int kMostPages = 64;
  constexpr int64_t kMostAtOnce = int64_t{1} << 24;  // pixels decoded together
  if (file.page() > 0) return 0;
  const ImageLimits any_size = streamed(limits);
  const auto opened = open_tiff_header(file, limits);
  TIFF* const tiff = opened->tiff.get();
  const ImageHeader whole = tiff_header(tiff, any_size);
  const auto samples = sample_tags(tiff);
  int found = 0;
  int64_t found_side = std::max(whole.height, whole.width);
  for (int page = 2; page <= kMostPages && TIFFReadDirectory(tiff) != 0;
       ++page) {
    uint32_t kind = 0;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SUBFILETYPE, &kind);
    // This page is a different picture, and the overviews after it belong to
    // it.
    if ((kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) == 0) break;
    if ((kind & FILETYPE_MASK) != 0) continue;
    const auto small = header_if_sound(tiff, any_size);
    if (!small) continue;
    const int64_t side = std::max(small->height, small->width);
    if (side >= longest && side < found_side && has_shape_of(*small, whole) &&
        sample_tags(tiff) == samples &&
        tiff_chunk_rows(tiff, small->height) * small->width <= kMostAtOnce) {
      found = page;
      found_side = side;
    }
  }
  return found;
}

void refuse_tiff(const std::string& message) {
  throw ImageRefusal("a damaged TIFF, or one of a kind that is not read (" +
                     message +
                     "): write it anew, for example with gdal_translate or "
                     "tiffcp, with 8 or 16 bits a sample");
}

ImageHeader tiff_header(TIFF* tiff, const ImageLimits& limits) {
  uint32_t width = 0;
  uint32_t height = 0;
  uint16_t orientation = 1;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
  check_pixels(width, height, limits);
  if (orientation < 1 || orientation > 8) orientation = 1;
  return {height, width, orientation};
}

int64_t tiff_chunk_rows(TIFF* tiff, int64_t height) {
  uint32_t rows = 1;
  if (TIFFIsTiled(tiff) != 0) {
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &rows);
  } else {
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
  }
  return std::clamp<int64_t>(rows, 1, height);
}

std::unique_ptr<OpenTiff> open_tiff_header(ImageFile& file,
                                           const ImageLimits& limits) {
  auto opened = std::make_unique<OpenTiff>();
  opened->source.file = &file;
  opened->tiff = open_source(opened->source, limits);
  return opened;
}

std::unique_ptr<OpenTiff> open_tiff(ImageFile& file,
                                    const ImageLimits& limits) {
  auto opened = open_tiff_header(file, limits);
  if (!has_to_be_mapped(opened->tiff.get())) return opened;
  check_held_file(file.size(), limits);
  opened->tiff.reset();
  opened->source.bytes = file.read_all();
  opened->tiff = open_source(opened->source, limits);
  return opened;
}

}  // namespace headroom::codecs
