#include "worker/data/codecs/geo_tags.h"

#include <array>
#include <cstdlib>
#include <type_traits>

#include "parallel/base/check.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/codecs/tiff_file.h"

namespace headroom::codecs {
namespace {

constexpr uint32_t kPixelScale = 33550, kTiePoints = 33922,
                   kTransformation = 34264, kKeys = 34735, kKeyNumbers = 34736,
                   kKeyText = 34737, kNoData = 42113;
TIFFFieldInfo described(uint32_t tag, TIFFDataType type, const char* name) {
  return {tag, TIFF_VARIABLE2,         TIFF_VARIABLE2, type, FIELD_CUSTOM, 1,
          1,   const_cast<char*>(name)};
}

// The entries are static, because an open TIFF keeps pointers to them.
const std::array<TIFFFieldInfo, 7> kFields = {
    described(kPixelScale, TIFF_DOUBLE, "ModelPixelScale"),
    described(kTiePoints, TIFF_DOUBLE, "ModelTiepoint"),
    described(kTransformation, TIFF_DOUBLE, "ModelTransformation"),
    described(kKeys, TIFF_SHORT, "GeoKeyDirectory"),
    described(kKeyNumbers, TIFF_DOUBLE, "GeoDoubleParams"),
    described(kKeyText, TIFF_ASCII, "GeoAsciiParams"),
    described(kNoData, TIFF_ASCII, "GDALNoDataValue")};

constexpr size_t kTiePointSize = 6, kTransformationSize = 16;

// The content of a tag that libtiff does not define itself. Another library in
// this process may have registered the tag with a 16-bit count instead of a
// 32-bit one, so both are handled.
template <typename Value>
std::vector<Value> numbers_of(TIFF* tiff, uint32_t tag, TIFFDataType type) {
  const TIFFField* const field = TIFFFindField(tiff, tag, TIFF_ANY);
  if (field == nullptr || TIFFFieldDataType(field) != type ||
      TIFFFieldPassCount(field) == 0) {
    return {};
  }
  const void* values = nullptr;
  uint64_t count = 0;
  if (TIFFFieldReadCount(field) == TIFF_VARIABLE2) {
    uint32_t wide = 0;
    if (TIFFGetField(tiff, tag, &wide, &values) != 1) return {};
    count = wide;
  } else {
    uint16_t narrow = 0;
    if (TIFFGetField(tiff, tag, &narrow, &values) != 1) return {};
    count = narrow;
  }
  const auto* const first = static_cast<const Value*>(values);
  constexpr uint64_t kMostValues = 65'535;
  if (first == nullptr || count > kMostValues) return {};
  return {first, first + count};
}

std::string text_of(TIFF* tiff, uint32_t tag) {
  const TIFFField* const field = TIFFFindField(tiff, tag, TIFF_ANY);
  if (field == nullptr || TIFFFieldDataType(field) != TIFF_ASCII) return "";
  if (TIFFFieldPassCount(field) != 0) {
    const std::vector<char> text = numbers_of<char>(tiff, tag, TIFF_ASCII);
    const std::string all(text.begin(), text.end());
    return all.c_str();  // up to the terminating zero
  }
  const char* text = nullptr;
  if (TIFFGetField(tiff, tag, &text) != 1 || text == nullptr) return "";
  return text;
}

template <typename Values>
void set_values(TIFF* tiff, uint32_t tag, const Values& values) {
  if (values.empty()) return;
  const bool has_count =
      TIFFFieldPassCount(TIFFFindField(tiff, tag, TIFF_ANY)) != 0;
  // The count of a text includes its terminating zero.
  constexpr bool kIsText = std::is_same_v<Values, std::string>;
  const int count = static_cast<int>(values.size()) + (kIsText ? 1 : 0);
  HEADROOM_CHECK((has_count ? TIFFSetField(tiff, tag, count, values.data())
                            : TIFFSetField(tiff, tag, values.data())) == 1,
                 "libtiff takes no tag of a GeoTIFF");
}

// Returns nullopt if the file is not a TIFF.
std::optional<GeoTags> tags_of(const std::filesystem::path& file) {
  try {
    ImageFile opened(file, kMaxStreamedFileBytes);
    std::vector<uint8_t> head(static_cast<size_t>(kCodecHeadBytes));
    head.resize(opened.read_at(0, head));
    if (!kTiffCodec.matches(head)) return std::nullopt;
    const auto source = open_tiff_header(opened, {});
    TIFF* const tiff = source->tiff.get();
    return GeoTags{
        .tie_points = numbers_of<double>(tiff, kTiePoints, TIFF_DOUBLE),
        .pixel_scale = numbers_of<double>(tiff, kPixelScale, TIFF_DOUBLE),
        .transformation =
            numbers_of<double>(tiff, kTransformation, TIFF_DOUBLE),
        .keys = numbers_of<uint16_t>(tiff, kKeys, TIFF_SHORT),
        .key_numbers = numbers_of<double>(tiff, kKeyNumbers, TIFF_DOUBLE),
        .key_text = text_of(tiff, kKeyText),
        .no_data = text_of(tiff, kNoData)};
  } catch (const ImageRefusal&) {
    return std::nullopt;
  }
}

}  // namespace

GeoTags GeoTags::moved(int64_t row, int64_t column) const {
  GeoTags result = *this;
  const auto right = static_cast<double>(column);
  const auto down = static_cast<double>(row);
  for (size_t i = 0; i + kTiePointSize <= tie_points.size();
       i += kTiePointSize) {
    result.tie_points[i] -= right;
    result.tie_points[i + 1] -= down;
  }
  if (transformation.size() == kTransformationSize) {
    constexpr size_t kRow = 4;
    for (size_t at = 0; at < 3 * kRow; at += kRow) {
      result.transformation[at + 3] +=
          right * transformation[at] + down * transformation[at + 1];
    }
  }
  return result;
}

std::optional<GeoTags> read_geo_tags(const std::filesystem::path& file) {
  auto tags = tags_of(file);
  if (tags && tags->tie_points.empty() && tags->transformation.empty()) {
    return std::nullopt;
  }
  return tags;
}

std::optional<double> no_data_of(const std::filesystem::path& file) {
  const auto tags = tags_of(file);
  if (!tags || tags->no_data.empty()) return std::nullopt;
  const char* const text = tags->no_data.c_str();
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end == text ? std::nullopt : std::optional(value);
}

void set_geo_tags(TIFF* tiff, const GeoTags& tags) {
  HEADROOM_CHECK(TIFFMergeFieldInfo(tiff, kFields.data(), kFields.size()) == 0,
                 "libtiff knows no tags of a GeoTIFF");
  set_values(tiff, kPixelScale, tags.pixel_scale);
  set_values(tiff, kTiePoints, tags.tie_points);
  set_values(tiff, kTransformation, tags.transformation);
  set_values(tiff, kKeys, tags.keys);
  set_values(tiff, kKeyNumbers, tags.key_numbers);
  set_values(tiff, kKeyText, tags.key_text);
  set_values(tiff, kNoData, tags.no_data);
}

}  // namespace headroom::codecs
