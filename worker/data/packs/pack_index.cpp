#include "worker/data/packs/pack_index.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::packs {
namespace {

namespace fs = std::filesystem;

constexpr int kMostOpen = 256;

// Whether the entry of an image has valid values and matches its checksum.
bool is_sound(const IndexPart& part, size_t number) {
  constexpr uint64_t kMostOffset = uint64_t{1} << 62;
  const IndexedImage& image = part.images[number];
  const std::string_view name = part.name(number);
  const fs::path path(name);
  return part.is_possible(number) && image.shard < part.shards.size() &&
         image.height > 0 && image.width > 0 && image.bytes > 0 &&
         image.bytes <= kMostFileBytes && image.offset <= kMostOffset &&
         path.is_relative() && name.find('\0') == std::string_view::npos &&
         std::find(path.begin(), path.end(), "..") == path.end() &&
         image.check == check_of(name, image, part.labels.of(image));
}

// The index of each shard that this process has opened, by the shard's path.
std::mutex known_mutex;
std::unordered_map<std::string, std::shared_ptr<const PackIndex>>
    known_shards;  // guarded by known_mutex

}  // namespace

PackIndex::PackIndex(fs::path file, IndexPart content)
    : file_(std::move(file)),
      content_(std::move(content)),
      open_(content_.shards.size()) {
  content_.order_names();
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

uint32_t check_of(std::string_view name, IndexedImage image,
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
  IndexReader reader(path, IndexKind::kPack);
  std::optional<IndexPart> part = reader.next();
  if (!part) {
    throw Error("data", path.string() + " " + reader.fault(),
                reader.has_other_version()
                    ? "write the packs again with this version's headroom pack"
                    : "copy it again from where it is sound, or write the "
                      "packs again with headroom pack",
                ExitCode::kData);
  }
  Pack pack;
  for (size_t i = 0; i < part->images.size(); ++i) {
    if (!is_sound(*part, i)) pack.damaged.push_back(static_cast<int64_t>(i));
  }
  pack.labels = std::move(part->labels);
  pack.index = std::make_shared<const PackIndex>(path, std::move(*part));
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

}  // namespace headroom::packs
