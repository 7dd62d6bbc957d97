// Reads TIFF and BigTIFF through libtiff, in strips or tiles. Supports any
// compression and colour space that libtiff can convert to RGBA, and bands,
// which are read as they are stored. Reads the first page, or the page that the
// file's name asks for.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/codecs/tiff_file.h"

namespace headroom::codecs {
namespace {

// The samples of a TIFF as stored: bands of 8 or 16 bits (and float32 if
// ImageLimits accept any samples), interleaved or in separate planes, in strips
// or tiles.
//
//   samples of a pixel                 bands     with ch 3 or 1   kAnyBands
//   gray; gray and another one         1, 2      gray             1, 2
//   three that are not called RGB      3         these three      3
//   RGB; RGB and alpha                 3         RGB              RGB
//   RGB and one that is not alpha      4         RGB              4
//   more                               all       refused          all
//
// Samples that the file calls alpha are read only if `ch` asks for exactly that
// many samples. Palettes, CMYK, YCbCr and Lab count as colours: libtiff
// converts them to RGB.

struct TiffLayout {
  int samples = 1;  // samples of a pixel
  int alphas = 0;   // number of trailing alpha samples
  int bits = 1;     // bits of a sample
  bool is_rgb = false;
  bool is_plain = false;  // gray or RGB, black at 0
  int format = SAMPLEFORMAT_UINT;
  bool is_planar = false;

  int bands() const { return samples - alphas; }
  // OpenCV's depth for a sample; kNoDepth if samples of this kind are not read.
  static constexpr int kNoDepth = -1;
  int depth() const;
  bool has_whole_samples(bool takes_any) const {
    return depth() == CV_8U || depth() == CV_16U ||
           (takes_any && depth() != kNoDepth);
  }
};

class TiffBandReader {
 public:
  // Reads the first `bands` samples of each pixel. Throws ImageRefusal if a
  // strip or tile is larger than the limits allow. REQUIRES:
  // has_whole_samples(), and the layout has at least `bands` samples.
  TiffBandReader(TIFF* tiff, const TiffLayout& layout,
                 const ImageHeader& header, int bands,
                 const ImageLimits& limits);

  // Samples have as many bits as in the file.
  int type() const { return CV_MAKETYPE(layout_.depth(), bands_); }

  // Reads the rows of the strip, or row of tiles, that begins at `first_row`.
  // Returns false if libtiff fails. REQUIRES: `rows` has the picture's width,
  // type() and exactly the rows of that strip or row of tiles.
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
  int64_t part_width_ = 0;  // width of a tile, or of the picture for strips
  int64_t part_bytes_ = 0;
  // The memory is not cleared, so that only the bytes that libtiff writes
  // become resident.
  std::unique_ptr<uint8_t[]> part_;
};

// An RGB picture with at most this number of samples can be read as colours;
// the fourth sample is dropped. For gray pictures the limit is one lower.
constexpr int kMostColours = 4;

int trailing_alphas(TIFF* tiff) {
  uint16_t count = 0;
  const uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) == 0) return 0;
  int alphas = 0;
  while (alphas < count && kinds[count - 1 - alphas] != EXTRASAMPLE_UNSPECIFIED)
    ++alphas;
  return alphas;
}

bool has_own_bands(const TiffLayout& layout) {
  return layout.is_plain && layout.bands() > (layout.is_rgb ? kColours : 1);
}

int checked(const TiffLayout& layout, int bands, bool takes_any) {
  check_num_bands(bands);
  if (layout.has_whole_samples(takes_any)) return bands;
  const bool is_unsigned = layout.format == SAMPLEFORMAT_UINT;
  throw ImageRefusal(cat(
      counted(bands, "band"), " of ", layout.bits,
      is_unsigned ? "" : " signed or floating",
      " bits, but those of 8 and 16 unsigned bits are read: ",
      layout.depth() == TiffLayout::kNoDepth
          ? "convert them"
          : "say in data.yaml which values are 0 and 1, range: [low, high]"));
}

int TiffLayout::depth() const {
  if (format == SAMPLEFORMAT_UINT && bits == 8) return CV_8U;
  if (format == SAMPLEFORMAT_UINT && bits == 16) return CV_16U;
  if (format == SAMPLEFORMAT_INT && bits == 16) return CV_16S;
  return format == SAMPLEFORMAT_IEEEFP && bits == 32 ? CV_32F : kNoDepth;
}

TiffLayout tiff_layout(TIFF* tiff) {
  uint16_t samples = 1, bits = 1, photometric = 0;
  uint16_t planar = PLANARCONFIG_CONTIG, format = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &format);
  TiffLayout layout;
  layout.samples = samples;
  layout.bits = bits;
  layout.format = format;
  layout.is_planar = planar == PLANARCONFIG_SEPARATE && samples > 1;
  layout.is_rgb = photometric == PHOTOMETRIC_RGB && samples >= kColours;
  layout.is_plain =
      layout.is_rgb || (photometric == PHOTOMETRIC_MINISBLACK && samples >= 1);
  layout.alphas =
      std::min(trailing_alphas(tiff), samples - (layout.is_rgb ? kColours : 1));
  layout.alphas = std::max(layout.alphas, 0);
  return layout;
}

// Whether tiff_bands() accepts the samples for kColours.
bool reads_as_colours(const TiffLayout& layout) {
  const int most = layout.is_rgb ? kMostColours : kMostColours - 1;
  return !has_own_bands(layout) || layout.bands() <= most;
}

// The number of samples of a pixel to read as bands; 0 if the picture is to be
// read as colours. Throws ImageRefusal if the file does not have the bands that
// ImageLimits::bands asks for, or has samples of a kind that is not read.
int tiff_bands(const TiffLayout& layout, const ImageLimits& limits) {
  const int bands = layout.bands();
  const int wanted = limits.bands;
  const bool takes_any = limits.takes_any_samples();
  // libtiff cannot convert float32 to colours.
  if (layout.is_plain && layout.depth() == CV_32F) {
    checked(layout, bands, takes_any);
  }
  if (wanted == kAnyBands) {
    return has_own_bands(layout) ? checked(layout, bands, takes_any) : 0;
  }
  if (wanted != kColours) {
    if (!layout.is_plain) refuse_bands("colours", wanted);
    if (layout.samples != wanted && bands != wanted) {
      refuse_bands(bands, wanted);
    }
    return checked(layout, wanted, takes_any);
  }
  if (!has_own_bands(layout)) return 0;
  if (!layout.is_rgb && bands == kColours) {
    return layout.has_whole_samples(takes_any) ? kColours : 0;
  }
  if (!reads_as_colours(layout)) refuse_bands(bands, wanted);
  return 0;
}

TiffBandReader::TiffBandReader(TIFF* tiff, const TiffLayout& layout,
                               const ImageHeader& header, int bands,
                               const ImageLimits& limits)
    : tiff_(tiff), layout_(layout), width_(header.width), bands_(bands) {
  const int64_t rows = tiff_chunk_rows(tiff, header.height);
  const int64_t pixel_bytes =
      (layout.is_planar ? 1 : layout.samples) * (layout.bits / 8);
  part_width_ = width_;
  part_bytes_ = rows * width_ * pixel_bytes;
  if (TIFFIsTiled(tiff) != 0) {
    uint32_t tile_width = 0;
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &tile_width);
    part_width_ = tile_width;
    part_bytes_ = TIFFTileSize(tiff);
    if (tile_width == 0 || part_bytes_ / part_width_ / pixel_bytes < rows) {
      refuse_tiff("tiles smaller than they say");
    }
  }
  // This is also the limit that open_source sets for a single allocation of
  // libtiff.
  if (part_bytes_ / 8 > limits.max_pixels) {
    refuse_tiff(cat("strips or tiles of ", part_bytes_,
                    " bytes, above the limit of ", limits.max_pixels * 8));
  }
  part_ = std::make_unique_for_overwrite<uint8_t[]>(
      static_cast<size_t>(part_bytes_));
}

bool TiffBandReader::read(int64_t first_row, cv::Mat& rows) {
  const int planes = layout_.is_planar ? bands_ : 1;
  for (int plane = 0; plane < planes; ++plane) {
    if (!read_plane(plane, first_row, rows)) return false;
  }
  return true;
}

// Refuses an uncompressed part of which fewer than `wanted` bytes are stored,
// because libtiff does not check this. For a part that was never written, as in
// sparse files, it would return the beginning of the file.
void TiffBandReader::check_stored(uint32_t part, int64_t wanted) const {
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff_, TIFFTAG_COMPRESSION, &compression);
  if (compression != COMPRESSION_NONE) return;
  const uint64_t stored = TIFFGetStrileByteCount(tiff_, part);
  if (stored >= static_cast<uint64_t>(wanted) &&
      TIFFGetStrileOffset(tiff_, part) > 0) {
    return;
  }
  refuse_tiff(
      cat("strip or tile ", part, " has ", stored, " bytes of ", wanted));
}

bool TiffBandReader::read_plane(int plane, int64_t first_row, cv::Mat& rows) {
  const auto sample_bytes = static_cast<int64_t>(rows.elemSize1());
  const int64_t pixel_bytes =
      (layout_.is_planar ? 1 : layout_.samples) * sample_bytes;
  const int64_t row_bytes = part_width_ * pixel_bytes;
  const auto y = static_cast<uint32_t>(first_row);
  const auto which = static_cast<uint16_t>(plane);
  for (int64_t x = 0; x < width_; x += part_width_) {
    if (TIFFIsTiled(tiff_) != 0) {
      const uint32_t tile =
          TIFFComputeTile(tiff_, static_cast<uint32_t>(x), y, 0, which);
      check_stored(tile, part_bytes_);
      if (TIFFReadEncodedTile(tiff_, tile, part_.get(), part_bytes_) !=
          part_bytes_) {
        return false;
      }
    } else {
      const int64_t bytes = rows.rows * row_bytes;
      const uint32_t strip = TIFFComputeStrip(tiff_, y, which);
      check_stored(strip, bytes);
      if (TIFFReadEncodedStrip(tiff_, strip, part_.get(), bytes) != bytes) {
        return false;
      }
    }
    const int64_t columns = std::min(part_width_, width_ - x);
    for (int row = 0; row < rows.rows; ++row) {
      take(part_.get() + row * row_bytes, plane,
           rows.ptr(row) + static_cast<size_t>(x) * rows.elemSize(), columns);
    }
  }
  return true;
}

void TiffBandReader::take(const uint8_t* stored, int plane, uint8_t* target,
                          int64_t columns) const {
  const auto sample_bytes = static_cast<size_t>(layout_.bits / 8);
  const auto pixel_bytes = static_cast<size_t>(bands_) * sample_bytes;
  const size_t taken = layout_.is_planar ? sample_bytes : pixel_bytes;
  const size_t step = layout_.is_planar
                          ? sample_bytes
                          : static_cast<size_t>(layout_.samples) * sample_bytes;
  target += layout_.is_planar ? static_cast<size_t>(plane) * sample_bytes : 0;
  for (int64_t i = 0; i < columns; ++i) {
    std::memcpy(target, stored, taken);
    target += pixel_bytes;
    stored += step;
  }
}

// Reduces 16 bits to 8 as libtiff's RGBA does. REQUIRES: equal sizes and bands.
void narrow_samples(const cv::Mat& wide, cv::Mat& narrow) {
  const auto count =
      static_cast<size_t>(wide.cols) * static_cast<size_t>(wide.channels());
  for (int y = 0; y < wide.rows; ++y) {
    const auto* source = wide.ptr<uint16_t>(y);
    auto* target = narrow.ptr<uint8_t>(y);
    for (size_t i = 0; i < count; ++i) {
      target[i] = static_cast<uint8_t>((source[i] + 128) / 257);
    }
  }
}

// Decides whether a gray or RGB picture of more than 8 bits is read without
// libtiff's RGBA, which has 8 bits. Returns the number of samples to read, or 0
// to use RGBA. Separate planes use RGBA, unless the limits accept any samples.
int plain_samples(const TiffLayout& layout, const ImageLimits& limits) {
  const bool is_read = limits.takes_any_samples()
                           ? layout.depth() > CV_8U
                           : layout.depth() == CV_16U && !layout.is_planar;
  if (!is_read || !layout.is_plain || layout.samples > kMostBands) {
    if (layout.bits <= 8 || limits.ranges.empty()) return 0;
    throw ImageRefusal(cat("samples of ", layout.bits,
                           " bits that are neither gray, RGB nor bands, or not "
                           "read with range: convert them, for example with "
                           "gdal_translate -ot UInt16"));
  }
  return layout.is_rgb || layout.samples >= kColours ? kColours : 1;
}

// Throws ImageRefusal if libtiff cannot convert the samples to colours.
void check_colours(TIFF* tiff, const TiffSource& source) {
  std::array<char, 1024> message{};
  if (TIFFRGBAImageOK(tiff, message.data()) != 0) return;
  refuse_tiff(source.error.empty() ? message.data() : source.error);
}

class RgbaReader {
 public:
  RgbaReader(TIFF* tiff, const TiffSource& source) {
    check_colours(tiff, source);
    std::array<char, 1024> message{};
    constexpr int kStopOnError = 1;
    if (TIFFRGBAImageBegin(&image_, tiff, kStopOnError, message.data()) == 0) {
      refuse_tiff(source.error.empty() ? message.data() : source.error);
    }
    // Keep rows in stored order: image.cpp applies the orientation.
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

// `raster` contains rows `rows`. Copies the rows that `image` keeps into it.
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
  const auto opened = open_tiff_header(file, limits);
  TIFF* const tiff = opened->tiff.get();
  const ImageHeader header = tiff_header(tiff, limits);
  const TiffLayout layout = tiff_layout(tiff);
  const int bands = tiff_bands(layout, limits);
  if (bands > 0) check_samples(header.width, header.height, bands, limits);
  if (bands == 0 && plain_samples(layout, limits) == 0) {
    check_colours(tiff, opened->source);
  }
  return header;
}

[[noreturn]] void refuse_pixels(const TiffSource& source) {
  refuse_tiff(source.error.empty() ? "pixels cannot be read" : source.error);
}

// Calls `take` for every chunk, also for chunks of which no row is kept: damage
// is found only in data that is decoded.
template <typename Take>
void for_each_chunk(TIFF* tiff, const ImageHeader& header, const Take& take) {
  const int64_t chunk = tiff_chunk_rows(tiff, header.height);
  for (int64_t row = 0; row < header.height; row += chunk) {
    take(PixelRows{row, std::min(row + chunk, header.height)});
  }
}

RawImage decode_colours(OpenTiff& opened, const ImageHeader& header,
                        PixelRows wanted) {
  TiffSource& source = opened.source;
  TIFF* const tiff = opened.tiff.get();
  RgbaReader reader(tiff, source);
  source.reading_pixels = true;
  source.error.clear();
  RawImage image = allocate_rows(header, wanted);
  // The memory is not cleared, so that only the part that rows are decoded into
  // becomes resident.
  const auto raster = std::make_unique_for_overwrite<uint32_t[]>(
      static_cast<size_t>(tiff_chunk_rows(tiff, header.height) * header.width));
  for_each_chunk(tiff, header, [&](PixelRows rows) {
    if (!reader.read(rows.begin, rows.size(), raster.get()) ||
        !source.error.empty()) {
      refuse_pixels(source);
    }
    copy_kept(raster.get(), rows, image);
  });
  return image;
}

RawImage decode_bands(OpenTiff& opened, const ImageHeader& header,
                      const TiffLayout& layout, int bands,
                      const ImageLimits& limits, PixelRows wanted) {
  TiffSource& source = opened.source;
  TIFF* const tiff = opened.tiff.get();
  check_samples(header.width, header.height, bands, limits);
  TiffBandReader reader(tiff, layout, header, bands, limits);
  source.reading_pixels = true;
  source.error.clear();
  RawImage image = allocate_rows(header, wanted, CV_8UC(bands));
  cv::Mat chunk(static_cast<int>(tiff_chunk_rows(tiff, header.height)),
                static_cast<int>(header.width), reader.type());
  for_each_chunk(tiff, header, [&](PixelRows rows) {
    cv::Mat part = chunk.rowRange(0, static_cast<int>(rows.size()));
    if (!reader.read(rows.begin, part) || !source.error.empty()) {
      refuse_pixels(source);
    }
    const int64_t begin = std::max(rows.begin, image.kept.begin);
    const int64_t end = std::min(rows.end, image.kept.end);
    if (begin >= end) return;
    const auto within = [begin, end](const cv::Mat& pixels, int64_t first) {
      return pixels.rowRange(static_cast<int>(begin - first),
                             static_cast<int>(end - first));
    };
    cv::Mat target = within(image.pixels, image.kept.begin);
    if (layout.bits == 16) {
      narrow_samples(within(part, rows.begin), target);
    } else {
      within(part, rows.begin).copyTo(target);
    }
  });
  return image;
}

RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows wanted) {
  const auto opened = open_tiff(file, limits);
  TIFF* const tiff = opened->tiff.get();
  const ImageHeader header = tiff_header(tiff, limits);
  const TiffLayout layout = tiff_layout(tiff);
  const int bands = tiff_bands(layout, limits);
  return bands == 0
             ? decode_colours(*opened, header, wanted)
             : decode_bands(*opened, header, layout, bands, limits, wanted);
}

class TiffRows : public ScanlineReader {
 public:
  // `bands` reads the samples as stored; if it is nullopt, libtiff converts
  // them to colours.
  TiffRows(std::unique_ptr<OpenTiff> opened, const ImageHeader& header,
           int64_t chunk_rows, std::optional<TiffBandReader> bands)
      : ScanlineReader(header, bands ? bands->type() : CV_8UC3),
        opened_(std::move(opened)),
        bands_(std::move(bands)),
        chunk_rows_(chunk_rows) {
    if (!bands_) rgba_.emplace(opened_->tiff.get(), opened_->source);
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
  void load_chunk() {
    const int64_t rows = std::min(chunk_rows_, header().height - next_);
    chunk_.create(static_cast<int>(rows), static_cast<int>(header().width),
                  type());
    const bool done = bands_ ? bands_->read(next_, chunk_) : load_rgba(rows);
    if (!done || !opened_->source.error.empty()) refuse_pixels(opened_->source);
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

  std::unique_ptr<OpenTiff> opened_;
  std::optional<RgbaReader> rgba_;
  std::optional<TiffBandReader> bands_;
  int64_t chunk_rows_;
  int64_t next_ = 0;
  cv::Mat chunk_;  // the chunk that contains row next_
  std::vector<uint32_t> raster_;
};

std::unique_ptr<ScanlineReader> open_rows(ImageFile& file,
                                          const ImageLimits& limits) {
  auto opened = open_tiff(file, limits);
  TIFF* tiff = opened->tiff.get();
  const ImageHeader header = tiff_header(tiff, streamed(limits));
  const int64_t chunk = tiff_chunk_rows(tiff, header.height);
  check_pixels(header.width, chunk, limits);
  const TiffLayout layout = tiff_layout(tiff);
  int bands = tiff_bands(layout, limits);
  if (bands > 0) check_samples(header.width, chunk, bands, limits);
  if (bands == 0) bands = plain_samples(layout, limits);
  std::optional<TiffBandReader> reader;
  if (bands > 0) reader.emplace(tiff, layout, header, bands, limits);
  return std::make_unique<TiffRows>(std::move(opened), header, chunk,
                                    std::move(reader));
}

// The directory may be anywhere in the file, so the end of the file does not
// show whether it is complete.
bool ends_well(ImageFile&) { return true; }

}  // namespace

ImageSamples tiff_samples(ImageFile& file, const ImageLimits& limits) {
  const auto opened = open_tiff_header(file, limits);
  const TiffLayout layout = tiff_layout(opened->tiff.get());
  if (!layout.is_plain) return {};
  ImageSamples samples;
  ImageLimits any = limits;
  any.bands = kAnyBands;
  if (const int own = tiff_bands(layout, any)) samples.bands = own;
  if (layout.alphas > 0) samples.with_alpha = layout.samples;
  samples.are_colours = reads_as_colours(layout);
  return samples;
}

const Codec kTiffCodec{"TIFF", matches,   read_header,
                       decode, ends_well, open_rows};

}  // namespace headroom::codecs
