#include "worker/data/packs/pack_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::packs {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "an index is read as it lies in memory");

constexpr std::array<char, 8> kMagic{'H', 'R', 'P', 'A', 'C', 'K', '\r', '\n'};
constexpr uint32_t kVersion = 1;
constexpr int kMostDescriptors = 256;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t has_outlines = 0;
  uint64_t shards = 0, images = 0, name_bytes = 0, boxes = 0, points = 0;
  uint64_t header_digest = 0;  // of the bytes before it
};
static_assert(sizeof(Header) == 64 && sizeof(PackedPlace) == 48 &&
              sizeof(PackedBox) == 20 && sizeof(PackedPoint) == 8);

uint64_t digest_of(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_digest));
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

// An index that is open for reading; sizes are held against the file's length
// before memory is taken for them.
class IndexFile {
 public:
  explicit IndexFile(const fs::path& file)
      : file_(file),
        descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
      const std::string why = std::strerror(errno);
      close();
      refuse(file, "cannot be read (" + why + ")");
    }
    if (!S_ISREG(status.st_mode) ||
        static_cast<uint64_t>(status.st_size) < sizeof(Header)) {
      close();
      refuse(file,
             "is no index of packs: it has " + counted(status.st_size, "byte") +
                 ", fewer than the header's " + std::to_string(sizeof(Header)));
    }
    length_ = static_cast<uint64_t>(status.st_size);
  }
  ~IndexFile() { close(); }
  IndexFile(const IndexFile&) = delete;
  IndexFile& operator=(const IndexFile&) = delete;

  Header header() {
    Header header;
    read(&header, sizeof header);
    if (header.magic != kMagic) refuse(file_, "is no index of packs");
    if (header.version != kVersion) {
      throw Error("data",
                  file_.string() + " is an index of version " +
                      std::to_string(header.version) + ", not " +
                      std::to_string(kVersion),
                  "write the packs again with this version's headroom pack",
                  ExitCode::kData);
    }
    if (header.header_digest != digest_of(header)) {
      refuse(file_, "has a damaged header");
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
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  void read(void* bytes, uint64_t num_bytes) {
    if (read_at(descriptor_, position_, bytes, num_bytes) != num_bytes) {
      refuse(file_, errno == 0 ? "ends too early"
                               : std::string("cannot be read (") +
                                     std::strerror(errno) + ")");
    }
    position_ += num_bytes;
  }

  void check_length(const Header& header) const {
    const uint64_t most = length_;  // each number stands for a byte at least
    for (const uint64_t number :
         {header.shards, header.images, header.name_bytes, header.boxes,
          header.points}) {
      if (number > most) refuse(file_, "is cut off");
    }
    const uint64_t outlines = header.has_outlines != 0 ? 8 * header.boxes : 0;
    const uint64_t wanted = sizeof(Header) + 8 * header.shards +
                            (sizeof(PackedPlace) + 8 + 4 + 8) * header.images +
                            header.name_bytes +
                            sizeof(PackedBox) * header.boxes + outlines +
                            sizeof(PackedPoint) * header.points;
    if (wanted == length_) return;
    refuse(file_, "has " + counted(static_cast<int64_t>(length_), "byte") +
                      ", but its header says " + std::to_string(wanted));
  }

  const fs::path file_;
  int descriptor_ = -1;
  uint64_t length_ = 0, position_ = 0;
};

// Makes ends rise, up to `total` at most: an image whose end was damaged has
// another check then.
void straighten(std::vector<uint64_t>& ends, uint64_t total) {
  uint64_t before = 0;
  for (uint64_t& end : ends) {
    if (end < before || end > total) end = before;
    before = end;
  }
}

PackIndex::Content read_places(IndexFile& file, const Header& header) {
  PackIndex::Content content;
  file.read(content.shard_bytes, header.shards);
  file.read(content.places, header.images);
  file.read(content.name_ends, header.images);
  file.read(content.names, header.name_bytes);
  file.read(content.by_name, header.images);
  straighten(content.name_ends, content.names.size());
  for (uint32_t& image : content.by_name) {
    if (image >= header.images) image = 0;
  }
  return content;
}

PackedLabels read_labels(IndexFile& file, const Header& header) {
  PackedLabels labels;
  file.read(labels.box_ends, header.images);
  file.read(labels.boxes, header.boxes);
  file.read(labels.point_ends, header.has_outlines != 0 ? header.boxes : 0);
  file.read(labels.points, header.points);
  straighten(labels.box_ends, labels.boxes.size());
  straighten(labels.point_ends, labels.points.size());
  return labels;
}

bool is_in_range(const PackedBox& box) {
  const auto fits = [](float value) { return value >= 0 && value <= 1; };
  return box.class_index >= 0 && fits(box.cx) && fits(box.cy) && fits(box.w) &&
         fits(box.h);
}

bool is_in_range(const PackIndex& index, const PackedPlace& place,
                 std::string_view name) {
  constexpr int32_t kMostSide = 1 << 28;
  const fs::path path(name);
  return place.shard < index.num_shards() && place.height > 0 &&
         place.width > 0 && place.height <= kMostSide &&
         place.width <= kMostSide && place.bytes > 0 &&
         place.bytes <= kMostFileBytes && path.is_relative() &&
         name.find('\0') == std::string_view::npos &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

// Images whose entry is not what was written, or cannot be.
std::vector<int64_t> damaged_images(const PackIndex& index,
                                    const PackedLabels& labels) {
  std::vector<int64_t> damaged;
  for (int64_t i = 0; i < index.size(); ++i) {
    const PackedPlace& place = index.place(i);
    const std::string_view name = index.name(i);
    const ImageLabels own = labels.of(i);
    if (place.check != check_of(name, place, own) ||
        !is_in_range(index, place, name) ||
        !std::ranges::all_of(
            own.boxes, [](const PackedBox& box) { return is_in_range(box); })) {
      damaged.push_back(i);
    }
  }
  return damaged;
}

// What the process has read, and what the file was then.
struct Known {
  std::tuple<ino_t, off_t, time_t, int64_t> file;
  std::shared_ptr<const PackIndex> index;
};
std::mutex known_mutex;
std::map<fs::path, Known> known;  // guarded by known_mutex

std::tuple<ino_t, off_t, time_t, int64_t> identity_of(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

fs::path full_path(const fs::path& file) {
  return fs::absolute(file).lexically_normal();
}

}  // namespace

PackIndex::PackIndex(fs::path file, Content content)
    : file_(std::move(file)),
      content_(std::move(content)),
      descriptors_(content_.shard_bytes.size(), -1) {}

PackIndex::~PackIndex() {
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

std::string_view PackIndex::name(int64_t image) const {
  const auto at = static_cast<size_t>(image);
  const uint64_t begin = at == 0 ? 0 : content_.name_ends[at - 1];
  return std::string_view(content_.names)
      .substr(begin, content_.name_ends[at] - begin);
}

fs::path PackIndex::path(int64_t image) const {
  return shard(place(image).shard) / name(image);
}

std::optional<int64_t> PackIndex::find(std::string_view wanted) const {
  const auto found =
      std::lower_bound(content_.by_name.begin(), content_.by_name.end(), wanted,
                       [this](uint32_t image, std::string_view text) {
                         return name(image) < text;
                       });
  if (found == content_.by_name.end() || name(*found) != wanted) {
    return std::nullopt;
  }
  return *found;
}

fs::path PackIndex::shard(uint32_t number) const {
  return file_.parent_path() / shard_name(file_.stem().string(), number);
}

std::string PackIndex::shard_fault(uint32_t number) const {
  const fs::path path = shard(number);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return path.string() + " cannot be read (" + std::strerror(errno) + ")";
  }
  const auto found = static_cast<uint64_t>(status.st_size);
  const uint64_t wanted = content_.shard_bytes[number];
  if (S_ISREG(status.st_mode) && found == wanted) return "";
  return path.string() + " has " + counted(status.st_size, "byte") + ", not " +
         std::to_string(wanted);
}

// The descriptor of a shard that is read for the first time stays open, unless
// there are many.
int PackIndex::descriptor_of(uint32_t number, bool& is_own) const {
  const std::lock_guard lock(mutex_);
  is_own = false;
  int& kept = descriptors_[number];
  if (kept >= 0) return kept;
  const int opened =
      ::open(shard(number).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0 || num_open_ >= kMostDescriptors) {
    is_own = true;
    return opened;
  }
  ++num_open_;
  return kept = opened;
}

std::string PackIndex::read(uint32_t number, uint64_t offset, void* bytes,
                            uint64_t num_bytes) const {
  bool is_own = false;
  const int descriptor = descriptor_of(number, is_own);
  uint64_t done = 0;
  if (descriptor >= 0) done = read_at(descriptor, offset, bytes, num_bytes);
  const int why = errno;
  if (is_own && descriptor >= 0) ::close(descriptor);
  if (done == num_bytes) return "";
  return shard(number).string() +
         (descriptor >= 0 && why == 0
              ? " ends too early"
              : std::string(" cannot be read (") + std::strerror(why) + ")");
}

std::string index_name(const std::string& split) {
  return split + kIndexSuffix;
}

std::string shard_name(const std::string& split, uint32_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return split + "-" + digits + ".tar";
}

ImageLabels PackedLabels::of(int64_t image) const {
  const auto at = static_cast<size_t>(image);
  const uint64_t begin = at == 0 ? 0 : box_ends[at - 1];
  const uint64_t count = box_ends[at] - begin;
  ImageLabels own;
  own.boxes = {boxes.data() + begin, count};
  if (point_ends.empty()) return own;
  own.point_ends = {point_ends.data() + begin, count};
  own.first_point = begin == 0 ? 0 : point_ends[begin - 1];
  const uint64_t end = count == 0 ? own.first_point : own.point_ends.back();
  own.points = {points.data() + own.first_point, end - own.first_point};
  return own;
}

uint32_t check_of(std::string_view name, PackedPlace place,
                  const ImageLabels& labels) {
  place.check = 0;
  uint64_t digest = XXH3_64bits(name.data(), name.size());
  const auto add = [&digest](const void* bytes, size_t num_bytes) {
    digest = XXH3_64bits_withSeed(bytes, num_bytes, digest);
  };
  add(&place, sizeof place);
  add(labels.boxes.data(), labels.boxes.size_bytes());
  for (const uint64_t end : labels.point_ends) {
    const uint64_t own_end = end - labels.first_point;
    add(&own_end, sizeof own_end);
  }
  add(labels.points.data(), labels.points.size_bytes());
  return static_cast<uint32_t>(digest);
}

Pack read_pack(const fs::path& file) {
  const fs::path path = full_path(file);
  const auto identity = identity_of(path);
  IndexFile opened(path);
  const Header header = opened.header();
  Pack pack;
  pack.index =
      std::make_shared<const PackIndex>(path, read_places(opened, header));
  pack.labels = read_labels(opened, header);
  pack.damaged = damaged_images(*pack.index, pack.labels);
  const std::lock_guard lock(known_mutex);
  known[path] = {identity, pack.index};
  return pack;
}

std::shared_ptr<const PackIndex> open_index(const fs::path& file) {
  const fs::path path = full_path(file);
  const auto identity = identity_of(path);
  {
    const std::lock_guard lock(known_mutex);
    const auto found = known.find(path);
    if (found != known.end() && found->second.file == identity) {
      return found->second.index;
    }
  }
  return read_pack(path).index;
}

std::string index_bytes(const PackIndex::Content& content,
                        const PackedLabels& labels) {
  Header header;
  header.has_outlines = labels.point_ends.empty() ? 0 : 1;
  header.shards = content.shard_bytes.size();
  header.images = content.places.size();
  header.name_bytes = content.names.size();
  header.boxes = labels.boxes.size();
  header.points = labels.points.size();
  header.header_digest = digest_of(header);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const auto append = [&bytes](const auto& part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), bytes_of(part));
  };
  append(content.shard_bytes);
  append(content.places);
  append(content.name_ends);
  append(content.names);
  append(content.by_name);
  append(labels.box_ends);
  append(labels.boxes);
  append(labels.point_ends);
  append(labels.points);
  return bytes;
}

}  // namespace headroom::packs
