// TIFF and BigTIFF through libtiff: strips or tiles, any compression and
// colour space that libtiff can turn into RGBA, or bands as they are
// (tiff_bands.h). The first page is taken.
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/codecs/tiff_bands.h"
#include "worker/data/codecs/tiff_file.h"

namespace headroom::codecs {
namespace {

class RgbaReader {
 public:
  RgbaReader(TIFF* tiff, const TiffSource& source) {
    std::array<char, 1024> message{};
    constexpr int kStopOnError = 1;
    if (TIFFRGBAImageOK(tiff, message.data()) == 0 ||
        TIFFRGBAImageBegin(&image_, tiff, kStopOnError, message.data()) == 0) {
      refuse_tiff(source.error.empty() ? message.data() : source.error);
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

// Takes those of the rows `rows` in `raster` that `image` keeps.
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
  const int bands = tiff_bands(tiff_layout(tiff), limits.bands);
  if (bands > 0) check_samples(header.width, header.height, bands, limits);
  return header;
}

[[noreturn]] void refuse_pixels(const TiffSource& source) {
  refuse_tiff(source.error.empty() ? "pixels cannot be read" : source.error);
}

// Calls `take` with each chunk's rows, whatever is kept of them: damage shows
// only where data is decoded.
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
  // Not cleared: only what is decoded into it becomes resident.
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
  RawImage image = allocate_rows(header, wanted, bands);
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
  const int bands = tiff_bands(layout, limits.bands);
  return bands == 0
             ? decode_colours(*opened, header, wanted)
             : decode_bands(*opened, header, layout, bands, limits, wanted);
}

// Gray or RGB of 16 bits, side by side: to be read without libtiff's RGBA,
// which has 8. Returns how many samples that takes; else 0.
int plain_16_bits(const TiffLayout& layout) {
  if (layout.bits != 16 || !layout.is_unsigned || !layout.is_plain ||
      layout.is_planar || layout.samples > kMostBands) {
    return 0;
  }
  return layout.is_rgb || layout.samples >= kColours ? kColours : 1;
}

class TiffRows : public ScanlineReader {
 public:
  // `bands`: the reader of samples as they are; none: colours.
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
  cv::Mat chunk_;  // where next_ is
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
  int bands = tiff_bands(layout, limits.bands);
  if (bands > 0) check_samples(header.width, chunk, bands, limits);
  if (bands == 0) bands = plain_16_bits(layout);
  std::optional<TiffBandReader> reader;
  if (bands > 0) reader.emplace(tiff, layout, header, bands, limits);
  return std::make_unique<TiffRows>(std::move(opened), header, chunk,
                                    std::move(reader));
}

// The directory may stand anywhere: the end says nothing.
bool ends_well(ImageFile&) { return true; }

}  // namespace

ImageSamples tiff_samples(ImageFile& file, const ImageLimits& limits) {
  const auto opened = open_tiff_header(file, limits);
  const TiffLayout layout = tiff_layout(opened->tiff.get());
  if (!layout.is_plain) return {};
  ImageSamples samples;
  if (const int own = tiff_bands(layout, kAnyBands)) samples.bands = own;
  if (layout.alphas > 0) samples.with_alpha = layout.samples;
  samples.are_colours = reads_as_colours(layout);
  return samples;
}

const Codec kTiffCodec{"TIFF", matches,   read_header,
                       decode, ends_well, open_rows};

}  // namespace headroom::codecs
