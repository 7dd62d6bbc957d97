#include "worker/data/codecs/tiff_bands.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/tiff_file.h"

namespace headroom::codecs {
namespace {

// Alone beside RGB or two of gray a further sample says of itself what it is.
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

int checked(const TiffLayout& layout, int bands) {
  check_num_bands(bands);
  if (layout.has_whole_samples()) return bands;
  throw ImageRefusal(
      std::to_string(bands) + " bands of " + std::to_string(layout.bits) +
      (layout.is_unsigned ? "" : " signed or floating") +
      " bits, but those of 8 and 16 unsigned bits are read: convert them");
}

}  // namespace

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
  layout.is_unsigned = format == SAMPLEFORMAT_UINT;
  layout.is_planar = planar == PLANARCONFIG_SEPARATE && samples > 1;
  layout.is_rgb = photometric == PHOTOMETRIC_RGB && samples >= kColours;
  layout.is_plain =
      layout.is_rgb || (photometric == PHOTOMETRIC_MINISBLACK && samples >= 1);
  layout.alphas =
      std::min(trailing_alphas(tiff), samples - (layout.is_rgb ? kColours : 1));
  layout.alphas = std::max(layout.alphas, 0);
  return layout;
}

int tiff_bands(const TiffLayout& layout, int wanted) {
  const int bands = layout.bands();
  if (wanted == kAnyBands) {
    return has_own_bands(layout) ? checked(layout, bands) : 0;
  }
  if (wanted != kColours) {
    if (!layout.is_plain) refuse_bands("colours", wanted);
    if (layout.samples != wanted && bands != wanted) {
      refuse_bands(bands, wanted);
    }
    return checked(layout, wanted);
  }
  if (!has_own_bands(layout)) return 0;
  if (!layout.is_rgb && bands == kColours) {
    return layout.has_whole_samples() ? kColours : 0;
  }
  if (!reads_as_colours(layout)) refuse_bands(bands, wanted);
  return 0;
}

bool reads_as_colours(const TiffLayout& layout) {
  const int most = layout.is_rgb ? kMostColours : kMostColours - 1;
  return !has_own_bands(layout) || layout.bands() <= most;
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
  // What libtiff may take at once, too.
  if (part_bytes_ / 8 > limits.max_pixels) {
    refuse_tiff("strips or tiles of " + std::to_string(part_bytes_) +
                " bytes, above the limit of " +
                std::to_string(limits.max_pixels * 8));
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

// libtiff reads a part that is not compressed without asking how much of it
// there is: of one that was never written, as in sparse files, it would give
// whatever the file begins with.
void TiffBandReader::check_stored(uint32_t part, int64_t wanted) const {
  uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff_, TIFFTAG_COMPRESSION, &compression);
  if (compression != COMPRESSION_NONE) return;
  const uint64_t stored = TIFFGetStrileByteCount(tiff_, part);
  if (stored >= static_cast<uint64_t>(wanted) &&
      TIFFGetStrileOffset(tiff_, part) > 0) {
    return;
  }
  refuse_tiff("strip or tile " + std::to_string(part) + " has " +
              std::to_string(stored) + " bytes of " + std::to_string(wanted));
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

}  // namespace headroom::codecs
