#include "worker/data/codecs/exif.h"

#include <cstring>
#include <opencv2/core.hpp>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/image_bands.h"

namespace headroom::codecs {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr uint16_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

// Reading past the end returns 0. The value 0 is not a valid tag or
// orientation, and as a number of entries it means that there are none.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes)
      : bytes_(bytes), big_endian_(!bytes.empty() && bytes[0] == 'M') {}

  uint32_t u16(size_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < 2) return 0;
    const uint32_t first = bytes_[offset];
    const uint32_t second = bytes_[offset + 1];
    return big_endian_ ? first << 8 | second : second << 8 | first;
  }
  uint32_t u32(size_t offset) const {
    const uint32_t first = u16(offset);
    const uint32_t second = u16(offset + 2);
    return big_endian_ ? first << 16 | second : second << 16 | first;
  }

 private:
  std::span<const uint8_t> bytes_;
  bool big_endian_;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> exif) {
  if (exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0) {
    exif = exif.subspan(6);
  }
  if (exif.size() < 8 || (std::memcmp(exif.data(), "II*\0", 4) != 0 &&
                          std::memcmp(exif.data(), "MM\0*", 4) != 0)) {
    return 1;
  }
  const TiffReader reader(exif);
  const size_t directory = reader.u32(4);
  const uint32_t entries = reader.u16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) break;
    if (reader.u16(entry) != kOrientationTag) continue;
    const uint32_t value = reader.u16(entry + 8);
    const bool sound =
        reader.u16(entry + 2) == kShortType && value >= 1 && value <= 8;
    return sound ? static_cast<int>(value) : 1;
  }
  return 1;
}

cv::Mat upright(cv::Mat pixels, int orientation) {
  HEADROOM_CHECK(orientation >= 1 && orientation <= 8,
                 cat("orientation ", orientation));
  if (swaps_axes(orientation)) {
    pixels = transposed(pixels);
  }
  constexpr int kNone = 2, kBoth = -1, kVertical = 0, kHorizontal = 1;
  constexpr int kFlipOf[9] = {kNone,       kNone,     kHorizontal,
                              kBoth,       kVertical, kNone,
                              kHorizontal, kBoth,     kVertical};
  if (kFlipOf[orientation] != kNone) {
    cv::flip(pixels, pixels, kFlipOf[orientation]);
  }
  return pixels;
}

}  // namespace headroom::codecs
