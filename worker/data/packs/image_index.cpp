#include "worker/data/packs/image_index.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::packs {
namespace {

static_assert(std::endian::native == std::endian::little,
              "an index has the byte order of memory");

constexpr std::array<char, 8> kMagic{'H', 'R', 'P', 'A', 'C', 'K', '\r', '\n'};
constexpr uint32_t kVersion = 1;

struct IndexHeader {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  IndexKind kind = IndexKind::kPack;
  uint64_t shards = 0, images = 0, name_bytes = 0, boxes = 0, points = 0;
  uint64_t digest = 0;  // XXH3 of the header's bytes before this field
};
static_assert(sizeof(IndexHeader) == 64 && sizeof(PackedShard) == 16 &&
              sizeof(IndexedImage) == 80 && sizeof(IndexedBox) == 24 &&
              sizeof(IndexedPoint) == 8 && sizeof(SeenFiles) == 80 &&
              sizeof(IndexSeal) == 24);

uint64_t digest_of(const IndexHeader& header) {
  return XXH3_64bits(&header, offsetof(IndexHeader, digest));
}

template <typename Section>
uint64_t bytes_of(const Section& section) {
  return section.size() * sizeof(typename Section::value_type);
}

bool lies_within(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

// Whether the box is valid. Numbers may exceed their range slightly, because
// their text was rounded.
bool is_possible_box(const IndexedBox& box) {
  constexpr float kRounding = 1e-4F;
  const auto fits = [](float value) {
    return value >= -kRounding && value <= 1 + kRounding;  // false for NaN
  };
  return box.class_index >= 0 && fits(box.cx) && fits(box.cy) && fits(box.w) &&
         fits(box.h);
}

std::string system_error() {
  return std::string("cannot be read (") + std::strerror(errno) + ")";
}

}  // namespace

ImageLabels IndexedLabels::of(const IndexedImage& image) const {
  return {{boxes.data() + image.first_box, image.num_boxes},
          {points.data() + image.first_point, image.num_points}};
}

void IndexPart::add(std::string_view name, IndexedImage entry,
                    const ImageLabels& own) {
  entry.first_name_byte = names.size();
  entry.name_bytes = static_cast<uint32_t>(name.size());
  entry.first_box = labels.boxes.size();
  entry.num_boxes = static_cast<uint32_t>(own.boxes.size());
  entry.first_point = labels.points.size();
  entry.num_points = static_cast<uint32_t>(own.points.size());
  images.push_back(entry);
  names += name;
  labels.boxes.insert(labels.boxes.end(), own.boxes.begin(), own.boxes.end());
  labels.points.insert(labels.points.end(), own.points.begin(),
                       own.points.end());
}

void IndexPart::order_names() {
  const auto name_of = [this](uint32_t number) { return name(number); };
  const bool are_numbers =
      by_name.size() == images.size() &&
      std::ranges::all_of(
          by_name, [this](uint32_t number) { return number < images.size(); });
  if (are_numbers &&
      std::ranges::is_sorted(by_name, std::ranges::less_equal(), name_of)) {
    return;
  }
  by_name.resize(images.size());
  std::iota(by_name.begin(), by_name.end(), 0U);
  std::ranges::sort(by_name, {}, name_of);
}

std::string_view IndexPart::name(size_t number) const {
  const IndexedImage& own = images[number];
  if (!lies_within(own.first_name_byte, own.name_bytes, names.size())) {
    return "";
  }
  return std::string_view(names).substr(own.first_name_byte, own.name_bytes);
}

bool IndexPart::is_possible(size_t number) const {
  constexpr int32_t kMostSide = 1 << 28;
  const IndexedImage& image = images[number];
  if (name(number).empty() || image.height < 0 || image.width < 0 ||
      image.height > kMostSide || image.width > kMostSide ||
      !lies_within(image.first_box, image.num_boxes, labels.boxes.size()) ||
      !lies_within(image.first_point, image.num_points, labels.points.size())) {
    return false;
  }
  uint64_t points = 0;
  for (const IndexedBox& box : labels.of(image).boxes) {
    if (!is_possible_box(box)) return false;
    points += box.num_points;
  }
  return points == image.num_points &&
         (kind == IndexKind::kPack ||
          lies_within(files[number].first_fault_byte, files[number].fault_bytes,
                      faults.size()));
}

std::string index_bytes(IndexPart& part) {
  IndexHeader header;
  header.kind = part.kind;
  header.shards = part.shards.size();
  header.images = part.images.size();
  header.name_bytes = part.names.size();
  header.boxes = part.labels.boxes.size();
  header.points = part.labels.points.size();
  header.digest = digest_of(header);
  std::string bytes;
  uint64_t digest = 0;
  const auto append = [&](const void* section, uint64_t num_bytes) {
    if (num_bytes == 0) return;
    bytes.append(static_cast<const char*>(section), num_bytes);
    if (part.kind == IndexKind::kPack) return;
    digest = XXH3_64bits_withSeed(section, num_bytes, digest);
  };
  const auto append_section = [&append](const auto& section) {
    append(section.data(), bytes_of(section));
  };
  append(&header, sizeof header);
  append_section(part.shards);
  append_section(part.images);
  append_section(part.names);
  append_section(part.by_name);
  append_section(part.labels.boxes);
  append_section(part.labels.points);
  if (part.kind == IndexKind::kPack) return bytes;
  append_section(part.files);
  append_section(part.faults);
  append(&part.seal, offsetof(IndexSeal, digest));
  part.seal.digest = digest;
  append(&part.seal.digest, sizeof digest);
  return bytes;
}

IndexReader::IndexReader(const std::filesystem::path& file, IndexKind kind)
    : file_(file), kind_(kind) {
  struct stat status {};
  errno = file_.error();
  if (file_.descriptor() < 0 || ::fstat(file_.descriptor(), &status) != 0) {
    fault_ = system_error();
  } else if (!S_ISREG(status.st_mode)) {
    fault_ = "is no file";
  } else {
    length_ = static_cast<uint64_t>(status.st_size);
  }
}

bool IndexReader::is_missing() const {
  return file_.error() == ENOENT || file_.error() == ENOTDIR;
}

bool IndexReader::refuse(std::string fault) {
  fault_ = std::move(fault);
  return false;
}

bool IndexReader::read(void* bytes, uint64_t num_bytes) {
  if (num_bytes == 0) return true;
  if (num_bytes > length_ - position_) return refuse("ends too early");
  if (read_at(file_.descriptor(), position_, bytes, num_bytes) != num_bytes) {
    return refuse(errno == 0 ? "ends too early" : system_error());
  }
  position_ += num_bytes;
  if (kind_ == IndexKind::kFiles) {
    digest_ = XXH3_64bits_withSeed(bytes, num_bytes, digest_);
  }
  return true;
}

template <typename Section>
bool IndexReader::read_section(Section& section, uint64_t size) {
  if (size > (length_ - position_) / sizeof(typename Section::value_type)) {
    return refuse("ends too early");
  }
  section.resize(size);
  return read(section.data(), bytes_of(section));
}

bool IndexReader::read_sections(IndexPart& part) {
  const uint64_t left = length_ - position_;
  if (left < sizeof(IndexHeader)) {
    return refuse(cat("is no index of packs: it has ",
                      counted(static_cast<int64_t>(left), "byte"),
                      ", fewer than the header's ", sizeof(IndexHeader)));
  }
  IndexHeader header;
  if (!read(&header, sizeof header)) return false;
  if (header.magic != kMagic) return refuse("is no index of packs");
  if (header.version != kVersion) {
    has_other_version_ = true;
    return refuse(
        cat("is an index of version ", header.version, ", not ", kVersion));
  }
  if (header.digest != digest_of(header)) return refuse("has a damaged header");
  if (header.kind != kind_) return refuse("is no index of packs");
  const bool is_pack = kind_ == IndexKind::kPack;
  // Each element takes at least one byte, so these checks keep the sum below
  // from overflowing.
  for (const uint64_t number : {header.shards, header.images, header.name_bytes,
                                header.boxes, header.points}) {
    if (number > left || number > UINT32_MAX) {
      return refuse(
          cat("is cut off: its header speaks of ", number, " elements"));
    }
  }
  const uint64_t wanted =
      sizeof header + sizeof(PackedShard) * header.shards +
      (sizeof(IndexedImage) + sizeof(uint32_t)) * header.images +
      header.name_bytes + sizeof(IndexedBox) * header.boxes +
      sizeof(IndexedPoint) * header.points;
  if (is_pack && wanted != left) {
    return refuse(cat("has ", counted(static_cast<int64_t>(left), "byte"),
                      ", but its header says ", wanted));
  }
  part.kind = kind_;
  const bool has_common =
      read_section(part.shards, header.shards) &&
      read_section(part.images, header.images) &&
      read_section(part.names, header.name_bytes) &&
      (!is_pack || read_section(part.by_name, header.images)) &&
      read_section(part.labels.boxes, header.boxes) &&
      read_section(part.labels.points, header.points);
  if (!has_common || is_pack) return has_common;
  if (!read_section(part.files, header.images)) return false;
  uint64_t fault_bytes = 0;
  for (const SeenFiles& files : part.files) fault_bytes += files.fault_bytes;
  if (!read_section(part.faults, fault_bytes) ||
      !read(&part.seal, offsetof(IndexSeal, digest))) {
    return false;
  }
  const uint64_t digest = digest_;
  if (!read(&part.seal.digest, sizeof digest)) return false;
  if (part.seal.digest != digest) return refuse("is damaged");
  for (size_t i = 0; i < part.images.size(); ++i) {
    if (!part.is_possible(i)) return refuse("is damaged");
  }
  return true;
}

std::optional<IndexPart> IndexReader::next() {
  if (!fault_.empty()) return std::nullopt;
  begin_ = position_;
  digest_ = 0;
  IndexPart part;
  if (!read_sections(part)) return std::nullopt;
  return part;
}

}  // namespace headroom::packs
