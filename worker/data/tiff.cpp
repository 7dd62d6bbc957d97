// TIFF and BigTIFF through libtiff: strips or tiles, any compression and
// colour space that libtiff can turn into RGBA. The first page is taken.
//
// Messages go to the open file's own handlers (libtiff's global ones are
// shared by all threads).
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/data/codec.h"
#include "worker/data/row_reader.h"

namespace headroom {
namespace {

struct Source {
  ImageFile* file = nullptr;
  int64_t offset = 0;
  std::string error;  // the first
  bool reading_pixels = false;
  std::vector<uint8_t> bytes;  // all of the file, if libtiff is to have it so
};

Source& source_of(void* handle) { return *static_cast<Source*>(handle); }

tmsize_t read_bytes(thandle_t handle, void* buffer, tmsize_t count) {
  Source& source = source_of(handle);
  if (source.offset < 0 || count < 0) return 0;
  const size_t got = source.file->read_at(
      source.offset,
      {static_cast<uint8_t*>(buffer), static_cast<size_t>(count)});
  source.offset += static_cast<int64_t>(got);
  return static_cast<tmsize_t>(got);
}

tmsize_t write_bytes(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  Source& source = source_of(handle);
  const auto delta = static_cast<int64_t>(offset);
  if (whence == SEEK_SET) source.offset = delta;
  if (whence == SEEK_CUR) source.offset += delta;
  if (whence == SEEK_END) source.offset = source.file->size() + delta;
  return static_cast<toff_t>(source.offset);
}

int close_source(thandle_t) { return 0; }

// "Maps" the file by handing out a copy: a real map of a file that shrinks
// would be a fault.
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

void keep_first(Source& source, const char* format, va_list arguments) {
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

// Unknown tags are no fault, but libjpeg's complaints about damaged data come
// as warnings.
int on_warning(TIFF*, void* user, const char* module, const char* format,
               va_list arguments) {
  Source& source = source_of(user);
  if (source.reading_pixels && module != nullptr &&
      std::strcmp(module, "JPEGLib") == 0) {
    keep_first(source, format, arguments);
  }
  return 1;
}

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
using TiffHandle = std::unique_ptr<TIFF, CloseTiff>;

[[noreturn]] void refuse(const std::string& message) {
  throw ImageRefusal("damaged or unsupported TIFF: " + message);
}

TiffHandle open_tiff(Source& source, const ImageLimits& limits) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)>
      options(TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
  if (!options) throw ImageRefusal("no memory for libtiff");
  source.offset = 0;  // libtiff starts where the file stands
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, &source);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), limits.max_pixels * 8);
  TiffHandle tiff(TIFFClientOpenExt("image", source.bytes.empty() ? "rm" : "r",
                                    &source, read_bytes, write_bytes, seek,
                                    close_source, source_size, map_bytes,
                                    unmap_bytes, options.get()));
  if (!tiff) refuse(source.error);
  return tiff;
}

ImageHeader header_of(TIFF* tiff, const ImageLimits& limits) {
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

// libtiff 4.5 compares the size of an uncompressed tile with that of its read
// buffer, which it rounds up to 1 KiB unless the file is mapped: it refuses
// sound files otherwise.
bool has_to_be_mapped(TIFF* tiff) {
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  return TIFFIsTiled(tiff) != 0 && compression == COMPRESSION_NONE &&
         TIFFTileSize(tiff) % 1024 != 0;
}

// Rows that libtiff decodes together.
int64_t rows_per_chunk(TIFF* tiff, int64_t height) {
  uint32_t rows = 1;
  if (TIFFIsTiled(tiff) != 0) {
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &rows);
  } else {
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &rows);
  }
  return std::clamp<int64_t>(rows, 1, height);
}

class RgbaReader {
 public:
  RgbaReader(TIFF* tiff, Source& source) {
    std::array<char, 1024> message{};
    constexpr int kStopOnError = 1;
    if (TIFFRGBAImageOK(tiff, message.data()) == 0 ||
        TIFFRGBAImageBegin(&image_, tiff, kStopOnError, message.data()) == 0) {
      refuse(source.error.empty() ? message.data() : source.error);
    }
    // Rows in the order of the file; turning is done once, for all formats.
    image_.req_orientation = image_.orientation;
  }
  ~RgbaReader() { TIFFRGBAImageEnd(&image_); }
  RgbaReader(const RgbaReader&) = delete;
  RgbaReader& operator=(const RgbaReader&) = delete;

  bool read(int64_t first_row, int64_t rows, uint32_t* raster) {
    image_.row_offset = static_cast<int>(first_row);
    return TIFFRGBAImageGet(&image_, raster, image_.width,
                            static_cast<uint32_t>(rows)) != 0;
  }

 private:
  TIFFRGBAImage image_{};
};

// Of the rows `rows` in `raster` those that `image` keeps.
void copy_kept(const uint32_t* raster, PixelRows rows, RawImage& image) {
  const int64_t begin = std::max(rows.begin, image.kept.begin);
  const int64_t end = std::min(rows.end, image.kept.end);
  const int64_t width = image.header.width;
  for (int64_t y = begin; y < end; ++y) {
    const uint32_t* pixel = raster + (y - rows.begin) * width;
    auto* rgb =
        image.pixels.ptr<uint8_t>(static_cast<int>(y - image.kept.begin));
    for (int64_t x = 0; x < width; ++x, ++pixel, rgb += 3) {
      rgb[0] = static_cast<uint8_t>(TIFFGetR(*pixel));
      rgb[1] = static_cast<uint8_t>(TIFFGetG(*pixel));
      rgb[2] = static_cast<uint8_t>(TIFFGetB(*pixel));
    }
  }
}

bool matches(std::span<const uint8_t> head) {
  if (head.size() < 8) return false;
  const bool little = head[0] == 'I' && head[1] == 'I' && head[3] == 0;
  const bool big = head[0] == 'M' && head[1] == 'M' && head[2] == 0;
  const uint8_t version = little ? head[2] : head[3];
  return (little || big) && (version == 42 || version == 43);
}

ImageHeader read_header(ImageFile& file, const ImageLimits& limits) {
  Source source;
  source.file = &file;
  const TiffHandle tiff = open_tiff(source, limits);
  return header_of(tiff.get(), limits);
}

// An open file with what libtiff refers to.
struct OpenTiff {
  Source source;
  TiffHandle tiff;
};

std::unique_ptr<OpenTiff> open_with_source(ImageFile& file,
                                           const ImageLimits& limits) {
  auto opened = std::make_unique<OpenTiff>();
  opened->source.file = &file;
  opened->tiff = open_tiff(opened->source, limits);
  if (!has_to_be_mapped(opened->tiff.get())) return opened;
  check_held_file(file.size(), limits);
  opened->tiff.reset();
  opened->source.bytes = file.read_all();
  opened->tiff = open_tiff(opened->source, limits);
  return opened;
}

RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows wanted) {
  const auto opened = open_with_source(file, limits);
  Source& source = opened->source;
  TIFF* const tiff = opened->tiff.get();
  const ImageHeader header = header_of(tiff, limits);
  const int64_t chunk = rows_per_chunk(tiff, header.height);
  RgbaReader reader(tiff, source);
  source.reading_pixels = true;
  source.error.clear();
  RawImage image = allocate_rows(header, wanted);
  // Not cleared: only what is decoded into it becomes resident.
  const auto raster = std::make_unique_for_overwrite<uint32_t[]>(
      static_cast<size_t>(chunk * header.width));
  // All chunks, whatever is kept: damage shows only where data is decoded.
  for (int64_t row = 0; row < header.height; row += chunk) {
    const int64_t rows = std::min(chunk, header.height - row);
    if (!reader.read(row, rows, raster.get()) || !source.error.empty()) {
      refuse(source.error.empty() ? "pixels cannot be read" : source.error);
    }
    copy_kept(raster.get(), {row, row + rows}, image);
  }
  return image;
}

// Gray or RGB of 16 bits, side by side: to be read without libtiff's RGBA,
// which has 8.
bool has_plain_16_bits(TIFF* tiff, uint16_t& samples) {
  uint16_t bits = 1, photometric = 0, planar = PLANARCONFIG_CONTIG;
  uint16_t format = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &format);
  const bool gray = photometric == PHOTOMETRIC_MINISBLACK && samples >= 1;
  const bool rgb = photometric == PHOTOMETRIC_RGB && samples >= 3;
  return bits == 16 && format == SAMPLEFORMAT_UINT && (gray || rgb) &&
         samples <= CV_CN_MAX &&
         (planar == PLANARCONFIG_CONTIG || samples == 1);
}

class TiffRows : public RowReader {
 public:
  // `samples`: of a pixel as stored where they are plain and have 16 bits;
  // else 0.
  TiffRows(std::unique_ptr<OpenTiff> opened, const ImageHeader& header,
           int64_t chunk_rows, uint16_t samples)
      : RowReader(header, samples == 0  ? CV_8UC3
                          : samples < 3 ? CV_16UC1
                                        : CV_16UC3),
        opened_(std::move(opened)),
        chunk_rows_(chunk_rows),
        samples_(samples) {
    if (samples_ == 0) rgba_.emplace(tiff(), opened_->source);
    opened_->source.reading_pixels = true;
    opened_->source.error.clear();
  }

  void read(cv::Mat& rows) override {
    for (int y = 0; y < rows.rows; ++y, ++next_) {
      if (next_ % chunk_rows_ == 0) load_chunk();
      chunk_.row(static_cast<int>(next_ % chunk_rows_)).copyTo(rows.row(y));
    }
  }

  void pass(int64_t rows) override {
    const int64_t target = next_ + rows;
    const int64_t chunk_begin = target - target % chunk_rows_;
    if (chunk_begin > next_) next_ = chunk_begin;
    skip(target - next_);
  }

 private:
  TIFF* tiff() { return opened_->tiff.get(); }

  void load_chunk() {
    const int64_t rows = std::min(chunk_rows_, header().height - next_);
    chunk_.create(static_cast<int>(rows), static_cast<int>(header().width),
                  type());
    const bool done = samples_ == 0         ? load_rgba(rows)
                      : TIFFIsTiled(tiff()) ? load_tiles(rows)
                                            : load_strip(rows);
    if (!done || !opened_->source.error.empty()) {
      const std::string& error = opened_->source.error;
      refuse(error.empty() ? "pixels cannot be read" : error);
    }
  }

  bool load_rgba(int64_t rows) {
    raster_.resize(static_cast<size_t>(chunk_rows_ * header().width));
    if (!rgba_->read(next_, rows, raster_.data())) return false;
    RawImage image;
    image.header = header();
    image.kept = {next_, next_ + rows};
    image.pixels = chunk_;
    copy_kept(raster_.data(), image.kept, image);
    return true;
  }

  bool load_strip(int64_t rows) {
    const int64_t row_bytes = header().width * samples_ * 2;
    stored_.resize(static_cast<size_t>(rows * row_bytes));
    const auto bytes = static_cast<tmsize_t>(stored_.size());
    const uint32_t strip =
        TIFFComputeStrip(tiff(), static_cast<uint32_t>(next_), 0);
    if (TIFFReadEncodedStrip(tiff(), strip, stored_.data(), bytes) != bytes) {
      return false;
    }
    for (int64_t y = 0; y < rows; ++y) {
      take(stored_.data() + y * row_bytes, y, 0, header().width);
    }
    return true;
  }

  bool load_tiles(int64_t rows) {
    uint32_t tile_width = 0;
    TIFFGetField(tiff(), TIFFTAG_TILEWIDTH, &tile_width);
    const tmsize_t bytes = TIFFTileSize(tiff());
    const int64_t row_bytes = int64_t{tile_width} * samples_ * 2;
    if (tile_width == 0 || bytes < row_bytes * chunk_rows_) return false;
    stored_.resize(static_cast<size_t>(bytes));
    for (int64_t x = 0; x < header().width; x += tile_width) {
      const uint32_t tile = TIFFComputeTile(tiff(), static_cast<uint32_t>(x),
                                            static_cast<uint32_t>(next_), 0, 0);
      if (TIFFReadEncodedTile(tiff(), tile, stored_.data(), bytes) != bytes) {
        return false;
      }
      const int64_t columns = std::min<int64_t>(tile_width, header().width - x);
      for (int64_t y = 0; y < rows; ++y) {
        take(stored_.data() + y * row_bytes, y, x, columns);
      }
    }
    return true;
  }

  // The first or the first three samples of each pixel.
  void take(const uint8_t* bytes, int64_t y, int64_t x, int64_t columns) {
    const int channels = chunk_.channels();
    auto* target = chunk_.ptr<uint16_t>(static_cast<int>(y)) + x * channels;
    for (int64_t i = 0; i < columns; ++i, target += channels) {
      std::memcpy(target, bytes + i * samples_ * 2,
                  static_cast<size_t>(channels) * 2);
    }
  }

  std::unique_ptr<OpenTiff> opened_;
  std::optional<RgbaReader> rgba_;
  int64_t chunk_rows_;
  uint16_t samples_;
  int64_t next_ = 0;
  cv::Mat chunk_;  // where next_ is
  std::vector<uint32_t> raster_;
  std::vector<uint8_t> stored_;
};

std::unique_ptr<RowReader> open_rows(ImageFile& file,
                                     const ImageLimits& limits) {
  auto opened = open_with_source(file, limits);
  TIFF* tiff = opened->tiff.get();
  const ImageHeader header = header_of(tiff, streamed(limits));
  const int64_t chunk = rows_per_chunk(tiff, header.height);
  check_pixels(header.width, chunk, limits);
  uint16_t samples = 0;
  if (!has_plain_16_bits(tiff, samples)) samples = 0;
  return std::make_unique<TiffRows>(std::move(opened), header, chunk, samples);
}

// The directory may stand anywhere: the end says nothing.
bool ends_well(ImageFile&) { return true; }

}  // namespace

const Codec kTiffCodec{"TIFF", matches,   read_header,
                       decode, ends_well, open_rows};

}  // namespace headroom
