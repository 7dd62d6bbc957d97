#include "worker/data/packs/pack_index.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::packs {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "an index is read as it lies in memory");

constexpr std::array<char, 8> kMagic{'H', 'R', 'P', 'A', 'C', 'K', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr int kMostOpen = 256;

struct PackHeader {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  uint64_t shards = 0, images = 0, name_bytes = 0, boxes = 0, points = 0;
  uint64_t digest = 0;  // XXH3 of the header's bytes before this field
};
static_assert(sizeof(PackHeader) == 64 && sizeof(PackedShard) == 16 &&
              sizeof(PackedImage) == 80 && sizeof(PackedBox) == 24 &&
              sizeof(PackedPoint) == 8);

uint64_t digest_of(const PackHeader& header) {
  return XXH3_64bits(&header, offsetof(PackHeader, digest));
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Error("data", file.string() + " " + what,
              "copy it again from where it is sound, or write the packs again "
              "with headroom pack",
              ExitCode::kData);
}

template <typename Part>
uint64_t bytes_of(const Part& part) {
  return part.size() * sizeof(typename Part::value_type);
}

// An index that is open for reading. Sizes in it are checked against the file's
// length before memory is allocated for them.
class IndexFile {
 public:
  explicit IndexFile(const fs::path& path) : path_(path), file_(path) {
    struct stat status {};
    if (file_.descriptor() < 0 || ::fstat(file_.descriptor(), &status) != 0) {
      refuse(path, "cannot be read (" +
                       std::string(std::strerror(
                           file_.error() != 0 ? file_.error() : errno)) +
                       ")");
    }
    if (!S_ISREG(status.st_mode)) refuse(path, "is no file");
    length_ = static_cast<uint64_t>(status.st_size);
    if (length_ < sizeof(PackHeader)) {
      refuse(path, cat("is no index of packs: it has ",
                       counted(status.st_size, "byte"),
                       ", fewer than the header's ", sizeof(PackHeader)));
    }
  }

  PackHeader header() {
    PackHeader header;
    read(&header, sizeof header);
    if (header.magic != kMagic) refuse(path_, "is no index of packs");
    if (header.version != kVersion) {
      throw Error("data",
                  cat(path_.string(), " is an index of version ",
                      header.version, ", not ", kVersion),
                  "write the packs again with this version's headroom pack",
                  ExitCode::kData);
    }
    if (header.digest != digest_of(header)) {
      refuse(path_, "has a damaged header");
    }
    check_length(header);
    return header;
  }

  template <typename Part>
  void read(Part& part, uint64_t size) {
    part.resize(size);
    read(part.data(), bytes_of(part));
  }

 private:
  void read(void* bytes, uint64_t num_bytes) {
    if (read_at(file_.descriptor(), position_, bytes, num_bytes) != num_bytes) {
      refuse(path_, errno == 0 ? "ends too early"
                               : std::string("cannot be read (") +
                                     std::strerror(errno) + ")");
    }
    position_ += num_bytes;
  }

  void check_length(const PackHeader& header) const {
    // Each element takes at least one byte, so these checks keep the sum below
    // from overflowing.
    for (const uint64_t number :
         {header.shards, header.images, header.name_bytes, header.boxes,
          header.points}) {
      if (number > length_ || number > UINT32_MAX) {
        refuse(path_,
               cat("is cut off: its header speaks of ", number, " elements"));
      }
    }
    const uint64_t wanted =
        sizeof(PackHeader) + sizeof(PackedShard) * header.shards +
        (sizeof(PackedImage) + sizeof(uint32_t)) * header.images +
        header.name_bytes + sizeof(PackedBox) * header.boxes +
        sizeof(PackedPoint) * header.points;
    if (wanted == length_) return;
    refuse(path_, cat("has ", counted(static_cast<int64_t>(length_), "byte"),
                      ", but its header says ", wanted));
  }

  const fs::path path_;
  const OpenFile file_;
  uint64_t length_ = 0, position_ = 0;
};

bool lies_within(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

// Numbers may exceed their range by the rounding of their text.
bool is_possible(const PackedBox& box) {
  constexpr float kRounding = 1e-4F;
  const auto fits = [](float value) {
    return value >= -kRounding && value <= 1 + kRounding;  // not NaN
  };
  return box.class_index >= 0 && fits(box.cx) && fits(box.cy) && fits(box.w) &&
         fits(box.h);
}

bool is_possible(const PackIndex& index, const PackedImage& image,
                 std::string_view name) {
  constexpr int32_t kMostSide = 1 << 28;
  constexpr uint64_t kMostOffset = uint64_t{1} << 62;
  const fs::path path(name);
  return image.shard < index.num_shards() && image.height > 0 &&
         image.width > 0 && image.height <= kMostSide &&
         image.width <= kMostSide && image.bytes > 0 &&
         image.bytes <= kMostFileBytes && image.offset <= kMostOffset &&
         !name.empty() && path.is_relative() &&
         name.find('\0') == std::string_view::npos &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

// Whether an image's entry has valid values and matches its check.
bool is_sound(const PackIndex& index, const PackedLabels& labels,
              int64_t number) {
  const PackedImage& image = index.image(number);
  const std::string_view name = index.name(number);
  if (!is_possible(index, image, name) ||
      !lies_within(image.first_box, image.num_boxes, labels.boxes.size()) ||
      !lies_within(image.first_point, image.num_points, labels.points.size())) {
    return false;
  }
  const ImageLabels own = labels.of(image);
  uint64_t points = 0;
  for (const PackedBox& box : own.boxes) {
    if (!is_possible(box)) return false;
    points += box.num_points;
  }
  return points == own.points.size() &&
         image.check == check_of(name, image, own);
}

// The index of each shard that this process has opened, by the shard's path.
std::mutex known_mutex;
std::unordered_map<std::string, std::shared_ptr<const PackIndex>>
    known_shards;  // guarded by known_mutex

}  // namespace

PackIndex::PackIndex(fs::path file, Content content)
    : file_(std::move(file)),
      content_(std::move(content)),
      open_(content_.shards.size()) {
  std::vector<uint32_t>& numbers = content_.by_name;
  const auto name_of = [this](uint32_t number) { return name(number); };
  const bool are_numbers =
      numbers.size() == content_.images.size() &&
      std::ranges::all_of(numbers, [this](uint32_t number) {
        return number < content_.images.size();
      });
  if (are_numbers &&
      std::ranges::is_sorted(numbers, std::ranges::less_equal(), name_of)) {
    return;
  }
  numbers.resize(content_.images.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::ranges::sort(numbers, {}, name_of);
}

std::string_view PackIndex::name(int64_t number) const {
  const PackedImage& own = image(number);
  if (!lies_within(own.first_name_byte, own.name_bytes,
                   content_.names.size())) {
    return "";
  }
  return std::string_view(content_.names)
      .substr(own.first_name_byte, own.name_bytes);
}

fs::path PackIndex::path(int64_t number) const {
  return shard(image(number).shard) / name(number);
}

std::optional<int64_t> PackIndex::find(std::string_view wanted) const {
  const auto found = std::ranges::lower_bound(
      content_.by_name, wanted, {},
      [this](uint32_t number) { return name(number); });
  if (found == content_.by_name.end() || name(*found) != wanted) {
    return std::nullopt;
  }
  return *found;
}

fs::path PackIndex::shard(uint32_t number) const {
  return file_.parent_path() / shard_name(file_.stem().string(), number);
}

PackIndex::ShardState PackIndex::shard_state(uint32_t number) const {
  const fs::path path = shard(number);
  struct stat status {};
  if (with_patience([&] { return ::stat(path.c_str(), &status); }) != 0) {
    return {0,
            path.string() + " cannot be read (" + std::strerror(errno) + ")"};
  }
  if (!S_ISREG(status.st_mode)) return {0, path.string() + " is no file"};
  ShardState state{static_cast<uint64_t>(status.st_size), ""};
  const uint64_t wanted = content_.shards[number].bytes;
  if (state.bytes != wanted) {
    state.fault = cat(path.string(), " has ", counted(status.st_size, "byte"),
                      ", not ", wanted);
  }
  return state;
}

std::string PackIndex::shard_damage(uint32_t number) const {
  const ShardState state = shard_state(number);
  if (!state.fault.empty()) return state.fault;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> digest(
      XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(digest.get());
  std::vector<char> bytes(size_t{4} << 20);
  for (uint64_t at = 0; at < state.bytes;) {
    const uint64_t count = std::min<uint64_t>(bytes.size(), state.bytes - at);
    std::string why = read(number, at, bytes.data(), count);
    if (!why.empty()) return why;
    XXH3_64bits_update(digest.get(), bytes.data(), count);
    at += count;
  }
  if (XXH3_64bits_digest(digest.get()) == content_.shards[number].digest) {
    return "";
  }
  return shard(number).string() + " is not what was written";
}

// Keeps shards open after the first read, up to kMostOpen. Opens outside the
// lock, because opening may take seconds and must not block other threads.
std::shared_ptr<const OpenFile> PackIndex::open_shard(uint32_t number,
                                                      bool anew) const {
  if (!anew) {
    const std::lock_guard lock(mutex_);
    if (open_[number] != nullptr) return open_[number];
  }
  auto file = std::make_shared<const OpenFile>(shard(number));
  if (file->descriptor() < 0) return file;
  const std::lock_guard lock(mutex_);
  if (open_[number] == nullptr) {
    if (num_open_ >= kMostOpen) return file;
    ++num_open_;
  }
  open_[number] = file;
  return file;
}

std::string PackIndex::read(uint32_t number, uint64_t offset, void* bytes,
                            uint64_t num_bytes) const {
  int why = 0;
  // Try again with a new descriptor: old ones fail after a server restarts.
  for (const bool anew : {false, true}) {
    const auto file = open_shard(number, anew);
    why = file->error();
    if (why != 0) break;
    if (read_at(file->descriptor(), offset, bytes, num_bytes) == num_bytes) {
      return "";
    }
    why = errno;
    if (why == 0) return shard(number).string() + " ends too early";
    if (!may_pass(why)) break;
  }
  return shard(number).string() + " cannot be read (" + std::strerror(why) +
         ")";
}

std::string index_name(const std::string& split) {
  return split + kIndexSuffix;
}

std::string shard_name(const std::string& split, uint32_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return split + "-" + digits + ".tar";
}

ImageLabels PackedLabels::of(const PackedImage& image) const {
  return {{boxes.data() + image.first_box, image.num_boxes},
          {points.data() + image.first_point, image.num_points}};
}

uint32_t check_of(std::string_view name, PackedImage image,
                  const ImageLabels& labels) {
  image.check = 0;
  uint64_t digest = XXH3_64bits(name.data(), name.size());
  const auto add = [&digest](const void* bytes, size_t num_bytes) {
    digest = XXH3_64bits_withSeed(bytes, num_bytes, digest);
  };
  add(&image, sizeof image);
  add(labels.boxes.data(), labels.boxes.size_bytes());
  add(labels.points.data(), labels.points.size_bytes());
  return static_cast<uint32_t>(digest);
}

Pack read_pack(const fs::path& given) {
  const fs::path path = fs::absolute(given).lexically_normal();
  IndexFile file(path);
  const PackHeader header = file.header();
  Pack pack;
  PackIndex::Content content;
  file.read(content.shards, header.shards);
  file.read(content.images, header.images);
  file.read(content.names, header.name_bytes);
  file.read(content.by_name, header.images);
  file.read(pack.labels.boxes, header.boxes);
  file.read(pack.labels.points, header.points);
  pack.index = std::make_shared<const PackIndex>(path, std::move(content));
  for (int64_t i = 0; i < pack.index->size(); ++i) {
    if (!is_sound(*pack.index, pack.labels, i)) pack.damaged.push_back(i);
  }
  const std::lock_guard lock(known_mutex);
  for (uint32_t i = 0; i < pack.index->num_shards(); ++i) {
    known_shards[pack.index->shard(i).string()] = pack.index;
  }
  return pack;
}

std::shared_ptr<const PackIndex> known_index(const std::string& shard) {
  const std::lock_guard lock(known_mutex);
  const auto found = known_shards.find(shard);
  return found == known_shards.end() ? nullptr : found->second;
}

std::string index_bytes(const PackIndex::Content& content,
                        const PackedLabels& labels) {
  PackHeader header;
  header.shards = content.shards.size();
  header.images = content.images.size();
  header.name_bytes = content.names.size();
  header.boxes = labels.boxes.size();
  header.points = labels.points.size();
  header.digest = digest_of(header);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const auto append = [&bytes](const auto& part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), bytes_of(part));
  };
  append(content.shards);
  append(content.images);
  append(content.names);
  append(content.by_name);
  append(labels.boxes);
  append(labels.points);
  return bytes;
}

}  // namespace headroom::packs
