#include "worker/data/codecs/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <opencv2/core.hpp>
#include <string_view>
#include <utility>

#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/level_reader.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::codecs {

bool names_page(std::string_view image) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kMostDigits = 6;
  const size_t hash = image.rfind('#');
  if (hash == std::string_view::npos) return false;
  const std::string_view number = image.substr(hash + 1);
  if (number.empty() || number.size() > kMostDigits ||
      number.find_first_not_of(kDigits) != std::string_view::npos) {
    return false;
  }
  std::string file(image.substr(0, hash));
  std::ranges::transform(file, file.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return std::ranges::any_of(
      std::array{".tif", ".tiff", ".svs"},
      [&](const char* suffix) { return file.ends_with(suffix); });
}

ImagePage image_page(const std::filesystem::path& image) {
  const std::string& text = image.native();
  if (!names_page(text)) return {text, 0};
  const size_t hash = text.rfind('#');
  return {text.substr(0, hash), std::stoi(text.substr(hash + 1))};
}

ImageFile::ImageFile(const std::filesystem::path& file, int64_t max_bytes) {
  if (auto packed = packs::read_packed(file)) {
    if (!packed->error.empty()) throw ImageRefusal(packed->error);
    held_ = std::move(packed->bytes);
    size_ = static_cast<int64_t>(held_.size());
    return;
  }
  // A named pipe in a data folder would block an ordinary open for ever.
  constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  descriptor_ = ::open(file.c_str(), kHow);
  if (descriptor_ < 0 && errno == ENOENT && names_page(file.native())) {
    const ImagePage named = image_page(file);
    if (named.page == 0) throw ImageRefusal("page 0: the first page is 1");
    page_ = named.page;
    descriptor_ = ::open(named.file.c_str(), kHow);
  }
  if (descriptor_ < 0) {
    throw ImageRefusal(std::string("cannot be opened: ") +
                       std::strerror(errno));
  }
  struct stat status {};
  std::string reason;
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    reason = "not a regular file";
  } else if (status.st_size == 0) {
    reason = "empty file";
  } else if (status.st_size > max_bytes) {
    reason = "file of " + format_bytes(status.st_size) +
             " is above the limit of " + format_bytes(max_bytes);
  }
  if (!reason.empty()) {
    ::close(descriptor_);
    throw ImageRefusal(reason);
  }
  size_ = status.st_size;
}

ImageFile::~ImageFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

size_t ImageFile::read_at(int64_t offset, std::span<uint8_t> buffer) noexcept {
  if (descriptor_ >= 0) {
    return packs::read_at(descriptor_, static_cast<uint64_t>(offset),
                          buffer.data(), buffer.size());
  }
  if (offset < 0 || offset >= size_) return 0;
  const size_t count =
      std::min(buffer.size(), static_cast<size_t>(size_ - offset));
  std::memcpy(buffer.data(), held_.data() + offset, count);
  return count;
}

std::vector<uint8_t> ImageFile::read_all() {
  if (descriptor_ < 0) return held_;
  std::vector<uint8_t> bytes(static_cast<size_t>(size_));
  if (read_at(0, bytes) != bytes.size()) {
    throw ImageRefusal("cannot be read to its end");
  }
  return bytes;
}

namespace {

constexpr std::array<const Codec*, 5> kCodecs{
    &kJpegCodec, &kPngCodec, &kBmpCodec, &kTiffCodec, &kWebpCodec};

// Describes a file that is not a supported image, by its content.
std::string describe_foreign(std::span<const uint8_t> head) {
  const ForeignKind kind =
      foreign_kind({reinterpret_cast<const char*>(head.data()), head.size()});
  const std::string name = to_string(kind);
  if (kind == ForeignKind::kLfsPointer) {
    return name + ", not an image: fetch it with git lfs pull";
  }
  if (is_image(kind)) return name + ", which is not supported";
  const std::string wanted = "not a JPEG, PNG, BMP, TIFF or WebP file";
  return kind == ForeignKind::kNone ? wanted : name + ", " + wanted;
}

const Codec& find_codec(ImageFile& file, const ImageLimits& limits) {
  std::array<uint8_t, kCodecHeadBytes> buffer{};
  const std::span<const uint8_t> head(buffer.data(), file.read_at(0, buffer));
  for (const Codec* codec : kCodecs) {
    if (!codec->matches(head)) continue;
    if (file.page() > 0 && codec != &kTiffCodec) {
      throw ImageRefusal(std::string("a ") + codec->name +
                         " file, which has no pages");
    }
    if (codec != &kTiffCodec && limits.bands != kColours &&
        limits.bands != kAnyBands) {
      refuse_bands(std::string("colours (") + codec->name + ")", limits.bands);
    }
    return *codec;
  }
  throw ImageRefusal(describe_foreign(head));
}

// Runs `body` and returns why it failed, "" if it succeeded. std::bad_alloc is
// passed on, because running out of memory is not a fault of the image.
template <typename Body>
std::string reason_of(Body&& body) {
  try {
    body();
    return "";
  } catch (const ImageRefusal& refusal) {
    return refusal.what();
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem) throw std::bad_alloc();
    return "cannot be decoded: " + error.err;
  }
}

// Limits that accept any kind of samples.
ImageLimits any_samples() { return {.bands = kAnyBands, .as_stored = true}; }

bool turns_upside_down(int orientation) {
  return orientation == 3 || orientation == 4;
}

// Returns the wanted rows of the upright picture, cut and turned from `raw`.
cv::Mat finished(RawImage& raw, PixelRows wanted, ImageSize size) {
  const int orientation = raw.header.orientation;
  PixelRows held = raw.kept;
  if (swaps_axes(orientation)) held = {0, size.height};
  if (turns_upside_down(orientation)) held = mirror_rows(held, size.height);
  wanted = clamp_rows(wanted, size.height);
  cv::Mat pixels = std::move(raw.pixels);
  if (held.size() > 0) pixels = upright(std::move(pixels), orientation);
  if (held == wanted) return pixels;
  return pixels
      .rowRange(static_cast<int>(wanted.begin - held.begin),
                static_cast<int>(wanted.end - held.begin))
      .clone();
}

ImageSize upright_size(const ImageHeader& header) {
  const auto height = static_cast<int32_t>(header.height);
  const auto width = static_cast<int32_t>(header.width);
  return swaps_axes(header.orientation) ? ImageSize{width, height}
                                        : ImageSize{height, width};
}

std::unique_ptr<ScanlineReader> open_rows(const Codec& codec, ImageFile& file,
                                          const ImageLimits& limits) {
  auto rows = codec.open_rows(file, limits);
  const ImageHeader& header = rows->header();
  constexpr int64_t kMaxSide = 1 << 28;  // OpenCV's offsets in a row are int
  if (std::max(header.width, header.height) > kMaxSide) {
    throw ImageRefusal(cat(header.width, " x ", header.height,
                           " pixels have a side above the limit of ",
                           kMaxSide));
  }
  if (limits.ranges.empty()) return rows;
  return std::make_unique<LevelReader>(std::move(rows), limits);
}

// Reads all rows of the file, so that damage anywhere is found.
RawImage decode_levels(const Codec& codec, ImageFile& file,
                       const ImageLimits& limits, PixelRows wanted) {
  const auto rows = open_rows(codec, file, limits);
  const ImageHeader& header = rows->header();
  const int bands = CV_MAT_CN(rows->type());
  check_samples(header.width, header.height, bands, limits);
  RawImage raw = allocate_rows(header, wanted, rows->type());
  rows->skip(raw.kept.begin);
  constexpr int64_t kAtOnce = 16;
  for (int64_t y = 0; y < raw.kept.size(); y += kAtOnce) {
    cv::Mat part = raw.pixels.rowRange(
        static_cast<int>(y),
        static_cast<int>(std::min(y + kAtOnce, raw.kept.size())));
    rows->read(part);
  }
  rows->skip(header.height - raw.kept.end);
  rows->finish();
  return raw;
}

}  // namespace

void check_pixels(int64_t width, int64_t height, const ImageLimits& limits) {
  if (width <= 0 || height <= 0) throw ImageRefusal("an image without pixels");
  if (height > limits.max_pixels / width) {
    throw ImageRefusal(cat(width, " x ", height,
                           " pixels are above the limit of ",
                           limits.max_pixels));
  }
}

PixelRows clamp_rows(PixelRows rows, int64_t height) {
  const int64_t begin = std::clamp<int64_t>(rows.begin, 0, height);
  return {begin, std::clamp(rows.end, begin, height)};
}

RawImage allocate_rows(const ImageHeader& header, PixelRows wanted, int type) {
  RawImage raw;
  raw.header = header;
  raw.kept = {0, header.height};
  if (!swaps_axes(header.orientation)) {
    raw.kept = clamp_rows(wanted, header.height);
    if (turns_upside_down(header.orientation)) {
      raw.kept = mirror_rows(raw.kept, header.height);
    }
  }
  raw.pixels.create(static_cast<int>(raw.kept.size()),
                    static_cast<int>(header.width), type);
  return raw;
}

ImageResult decode_image(const std::filesystem::path& file,
                         const ImageLimits& limits) {
  return decode_rows(file, kAllRows, limits);
}

ImageResult decode_rows(const std::filesystem::path& file, PixelRows rows,
                        const ImageLimits& limits) {
  ImageResult result;
  result.reason = reason_of([&] {
    ImageFile opened(file, limits.max_file_bytes);
    const Codec& codec = find_codec(opened, limits);
    RawImage raw = limits.ranges.empty()
                       ? codec.decode(opened, limits, rows)
                       : decode_levels(codec, opened, limits, rows);
    result.size = upright_size(raw.header);
    result.pixels = finished(raw, rows, result.size);
  });
  if (!result.ok()) result.pixels.release();
  return result;
}

ImageSizeResult read_image_size(const std::filesystem::path& file,
                                const ImageLimits& limits) {
  ImageSizeResult result;
  result.reason = reason_of([&] {
    ImageFile opened(file, limits.max_file_bytes);
    result.size =
        upright_size(find_codec(opened, limits).read_header(opened, limits));
  });
  return result;
}

int stored_orientation(const std::filesystem::path& file) {
  const ImageLimits limits = any_samples();
  int orientation = 1;
  reason_of([&] {
    ImageFile opened(file, limits.max_file_bytes);
    orientation =
        find_codec(opened, limits).read_header(opened, limits).orientation;
  });
  return orientation;
}

ImageSizeResult inspect_image(const std::filesystem::path& file,
                              const ImageLimits& limits) {
  ImageSizeResult result;
  result.reason = reason_of([&] {
    ImageFile opened(file, limits.max_file_bytes);
    const Codec& codec = find_codec(opened, limits);
    result.size = upright_size(codec.read_header(opened, limits));
    constexpr PixelRows kNone{0, 0};
    if (!codec.ends_well(opened)) codec.decode(opened, limits, kNone);
  });
  return result;
}

std::string read_image_rows(const std::filesystem::path& file,
                            const ImageLimits& limits,
                            const std::function<void(ScanlineReader&)>& use) {
  return reason_of([&] {
    ImageFile opened(file, kMaxStreamedFileBytes);
    use(*open_rows(find_codec(opened, limits), opened, limits));
  });
}

StreamedImage inspect_streamed(const std::filesystem::path& file,
                               const ImageLimits& limits) {
  StreamedImage result;
  result.reason = reason_of([&] {
    ImageFile opened(file, kMaxStreamedFileBytes);
    const Codec& codec = find_codec(opened, limits);
    const ImageHeader header = open_rows(codec, opened, limits)->header();
    result.size = upright_size(header);
    result.is_upright = header.orientation == 1;
    result.is_jpeg = &codec == &kJpegCodec;
    if (&codec == &kTiffCodec) {
      result.has_alpha = tiff_samples(opened, limits).with_alpha > 0;
    }
  });
  return result;
}

ImageSamples read_samples(const std::filesystem::path& file) {
  const ImageLimits limits = any_samples();
  ImageSamples samples;
  reason_of([&] {
    ImageFile opened(file, limits.max_file_bytes);
    if (&find_codec(opened, limits) == &kTiffCodec) {
      samples = tiff_samples(opened, limits);
    }
  });
  return samples;
}

int overview_page(const std::filesystem::path& file, const ImageLimits& limits,
                  int64_t longest) {
  int page = 0;
  reason_of([&] {
    ImageFile opened(file, kMaxStreamedFileBytes);
    if (&find_codec(opened, limits) == &kTiffCodec) {
      page = tiff_overview(opened, limits, longest);
    }
  });
  return page;
}

bool has_deep_samples(const std::filesystem::path& file) {
  bool is_deep = false;
  read_image_rows(file, any_samples(), [&](ScanlineReader& rows) {
    is_deep = CV_MAT_DEPTH(rows.type()) != CV_8U;
  });
  return is_deep;
}

}  // namespace headroom::codecs
