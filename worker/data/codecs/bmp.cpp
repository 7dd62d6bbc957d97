// BMP: uncompressed pixels of 1, 4, 8, 16, 24 and 32 bits.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

constexpr int64_t kFileHeaderBytes = 14;
constexpr uint32_t kUncompressed = 0;
constexpr uint32_t kBitFields = 3;
constexpr uint32_t kAlphaBitFields = 6;

uint32_t u16(const uint8_t* bytes) { return bytes[0] | bytes[1] << 8; }
uint32_t u32(const uint8_t* bytes) { return u16(bytes) | u16(bytes + 2) << 16; }

int64_t i32(const uint8_t* bytes) { return static_cast<int32_t>(u32(bytes)); }

struct Bitmap {
  int64_t height = 0;
  int64_t width = 0;
  bool top_down = false;
  uint32_t bits = 0;  // bits of a pixel
  int64_t pixel_offset = 0;
  int64_t row_bytes = 0;
  std::array<uint32_t, 3> masks{};  // red, green, blue; for 16 and 32 bits
  std::vector<std::array<uint8_t, 3>> palette;
};

void read_exactly(ImageFile& file, int64_t offset, std::span<uint8_t> buffer) {
  if (file.read_at(offset, buffer) != buffer.size()) {
    throw ImageRefusal("truncated BMP: the file ends early");
  }
}

void read_masks(ImageFile& file, uint32_t compression, Bitmap& bitmap) {
  bitmap.masks = bitmap.bits == 16
                     ? std::array<uint32_t, 3>{0x7C00, 0x03E0, 0x001F}
                     : std::array<uint32_t, 3>{0xFF0000, 0x00FF00, 0x0000FF};
  if (compression == kUncompressed) return;
  // The masks are inside newer headers, or directly after a 40-byte header:
  // both at this offset.
  std::array<uint8_t, 12> stored{};
  read_exactly(file, kFileHeaderBytes + 40, stored);
  for (size_t c = 0; c < 3; ++c) {
    bitmap.masks[c] = u32(stored.data() + 4 * c);
    if (bitmap.masks[c] == 0) {
      throw ImageRefusal("damaged BMP: a colour has no bits");
    }
  }
}

void read_palette(ImageFile& file, int64_t offset, int64_t entry_bytes,
                  int64_t entries, Bitmap& bitmap) {
  std::vector<uint8_t> stored(static_cast<size_t>(entries * entry_bytes));
  read_exactly(file, offset, stored);
  // Indices beyond the palette are black.
  bitmap.palette.resize(size_t{1} << bitmap.bits);
  for (int64_t i = 0; i < entries; ++i) {
    const uint8_t* entry = stored.data() + i * entry_bytes;
    bitmap.palette[i] = {entry[2], entry[1], entry[0]};
  }
}

Bitmap read_bitmap(ImageFile& file, const ImageLimits& limits) {
  std::array<uint8_t, kFileHeaderBytes + 40> head{};
  const size_t got = file.read_at(0, head);
  if (got < kFileHeaderBytes + 12) throw ImageRefusal("truncated BMP header");
  const uint8_t* info = head.data() + kFileHeaderBytes;
  const int64_t info_bytes = u32(info);
  const bool core = info_bytes == 12;  // OS/2
  if (!core && (info_bytes < 40 || info_bytes > 1024 || got < head.size())) {
    throw ImageRefusal(cat("damaged BMP: header of ", info_bytes, " bytes"));
  }
  Bitmap bitmap;
  bitmap.pixel_offset = u32(head.data() + 10);
  // Sizes are signed 32-bit numbers, in the oldest header unsigned 16-bit ones.
  bitmap.width = core ? int64_t{u16(info + 4)} : i32(info + 4);
  bitmap.height = core ? int64_t{u16(info + 6)} : i32(info + 8);
  bitmap.top_down = bitmap.height < 0;
  bitmap.height = std::abs(bitmap.height);
  bitmap.bits = u16(info + (core ? 10 : 14));
  const uint32_t compression = core ? kUncompressed : u32(info + 16);
  check_pixels(bitmap.width, bitmap.height, limits);

  const bool deep = bitmap.bits == 16 || bitmap.bits == 32;
  const bool palette = bitmap.bits == 1 || bitmap.bits == 4 || bitmap.bits == 8;
  if (!deep && !palette && bitmap.bits != 24) {
    throw ImageRefusal(
        cat("BMP with ", bitmap.bits, " bits per pixel is not supported"));
  }
  if (compression != kUncompressed &&
      !(deep &&
        (compression == kBitFields || compression == kAlphaBitFields))) {
    throw ImageRefusal(
        cat("compressed BMP (kind ", compression, ") is not supported"));
  }
  bitmap.row_bytes = (bitmap.width * bitmap.bits + 31) / 32 * 4;
  if (bitmap.pixel_offset + bitmap.row_bytes * bitmap.height > file.size()) {
    throw ImageRefusal(cat("truncated BMP: ", file.size(),
                           " bytes cannot hold ", bitmap.width, " x ",
                           bitmap.height, " pixels"));
  }
  if (deep) read_masks(file, compression, bitmap);
  if (palette) {
    const int64_t used = core ? 0 : u32(info + 32);
    const int64_t largest = int64_t{1} << bitmap.bits;
    read_palette(file, kFileHeaderBytes + info_bytes, core ? 3 : 4,
                 used == 0 ? largest : std::min(used, largest), bitmap);
  }
  return bitmap;
}

// The bits under `mask`, scaled to 0..255.
uint8_t channel(uint32_t value, uint32_t mask) {
  const uint64_t largest = mask >> std::countr_zero(mask);
  const uint64_t bits = (value & mask) >> std::countr_zero(mask);
  return static_cast<uint8_t>(bits * 255 / largest);
}

void convert_row(const Bitmap& bitmap, const uint8_t* row, uint8_t* rgb) {
  for (int64_t x = 0; x < bitmap.width; ++x, rgb += 3) {
    if (bitmap.bits == 24) {
      const uint8_t* pixel = row + 3 * x;
      std::reverse_copy(pixel, pixel + 3, rgb);
    } else if (!bitmap.palette.empty()) {
      const int64_t bit = x * bitmap.bits;
      const uint32_t shift = 8 - bitmap.bits - bit % 8;
      const uint32_t index = row[bit / 8] >> shift & ((1u << bitmap.bits) - 1);
      std::copy_n(bitmap.palette[index].data(), 3, rgb);
    } else {
      const uint32_t value =
          bitmap.bits == 16 ? u16(row + 2 * x) : u32(row + 4 * x);
      for (int c = 0; c < 3; ++c) rgb[c] = channel(value, bitmap.masks[c]);
    }
  }
}

// Fills `pixels` with the rows of the file from row `first` on.
void read_rows(ImageFile& file, const Bitmap& bitmap, int64_t first,
               cv::Mat& pixels) {
  std::vector<uint8_t> row(static_cast<size_t>(bitmap.row_bytes));
  for (int i = 0; i < pixels.rows; ++i) {
    const int64_t y = first + i;
    const int64_t stored = bitmap.top_down ? y : bitmap.height - 1 - y;
    read_exactly(file, bitmap.pixel_offset + stored * bitmap.row_bytes, row);
    convert_row(bitmap, row.data(), pixels.ptr<uint8_t>(i));
  }
}

bool matches(std::span<const uint8_t> head) {
  return head.size() >= 2 && head[0] == 'B' && head[1] == 'M';
}

ImageHeader read_header(ImageFile& file, const ImageLimits& limits) {
  const Bitmap bitmap = read_bitmap(file, limits);
  return {bitmap.height, bitmap.width, 1};
}

// Reads only the wanted rows. The format has no compression, so the other rows
// can be damaged only if the file is too short, which read_bitmap checks.
RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows wanted) {
  const Bitmap bitmap = read_bitmap(file, limits);
  RawImage image = allocate_rows({bitmap.height, bitmap.width, 1}, wanted);
  read_rows(file, bitmap, image.kept.begin, image.pixels);
  return image;
}

class BitmapRows : public ScanlineReader {
 public:
  BitmapRows(ImageFile& file, Bitmap bitmap)
      : ScanlineReader({bitmap.height, bitmap.width, 1}, CV_8UC3),
        file_(file),
        bitmap_(std::move(bitmap)) {}

  void read(cv::Mat& rows) override {
    read_rows(file_, bitmap_, next_, rows);
    next_ += rows.rows;
  }
  void skip(int64_t rows) override { next_ += rows; }

 private:
  ImageFile& file_;
  Bitmap bitmap_;
  int64_t next_ = 0;
};

std::unique_ptr<ScanlineReader> open_rows(ImageFile& file,
                                          const ImageLimits& limits) {
  return std::make_unique<BitmapRows>(file,
                                      read_bitmap(file, streamed(limits)));
}

// read_header has already compared the file's length with the picture's size.
bool ends_well(ImageFile&) { return true; }

}  // namespace

const Codec kBmpCodec{"BMP",  matches,   read_header,
                      decode, ends_well, open_rows};

}  // namespace headroom::codecs
