#include "worker/data/packs/packed_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "parallel/base/check.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::packs {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kInArchive = ".tar/";
constexpr uint64_t kBlock = uint64_t{256} << 10;

// "train" for "train-00003.tar"; "" for other names.
std::string split_of(const fs::path& shard) {
  const std::string stem = shard.stem().string();
  const size_t dash = stem.rfind('-');
  return dash == std::string::npos ? "" : stem.substr(0, dash);
}

bool is_file(const fs::path& path) {
  struct stat status {};
  return with_patience([&] { return ::stat(path.c_str(), &status); }) == 0 &&
         S_ISREG(status.st_mode);
}

// Opens the index of a shard that is not known yet. Returns why it failed, or
// "" and sets `index`.
std::string open_index_of(const fs::path& shard,
                          std::shared_ptr<const PackIndex>& index) {
  const std::string split = split_of(shard);
  const fs::path file = shard.parent_path() / index_name(split);
  if (split.empty() || !is_file(file)) {
    return shard.string() + " has no index beside it";
  }
  try {
    index = read_pack(file).index;
    return "";
  } catch (const Error& refusal) {
    return refusal.text();
  }
}

// The image that a path into a pack names.
struct Place {
  std::shared_ptr<const PackIndex> index;
  const IndexedImage* image = nullptr;
  std::string error;
};

// Returns nullopt if the path does not lead into an archive.
std::optional<Place> place_of(const fs::path& path) {
  const std::string& text = path.native();
  for (size_t at = text.find(kInArchive); at != std::string::npos;
       at = text.find(kInArchive, at + 1)) {
    const std::string shard = text.substr(0, at + kInArchive.size() - 1);
    Place place;
    // If the shard is known, no file system call is needed.
    place.index = known_index(shard);
    if (place.index == nullptr && !is_file(shard)) continue;
    if (place.index == nullptr) {
      place.error = open_index_of(shard, place.index);
      if (!place.error.empty()) return place;
    }
    const auto number = place.index->find(
        std::string_view(text).substr(at + kInArchive.size()));
    if (!number || place.index->path(*number) != path) {
      place.error = "is not in " + place.index->file().string();
      return place;
    }
    place.image = &place.index->image(*number);
    if (place.image->bytes > kMostFileBytes ||
        place.image->shard >= place.index->num_shards()) {
      place.error =
          "its entry in " + place.index->file().string() + " is damaged";
    }
    return place;
  }
  return std::nullopt;
}

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() -
                                                               begin);
}

// Calls `read` for one block after another. Returns the duration of the first
// call.
template <typename Read>
std::chrono::microseconds read_blocks(uint64_t num_bytes, const Read& read) {
  std::vector<char> bytes(std::min(num_bytes, kBlock));
  const Clock::time_point begin = Clock::now();
  std::chrono::microseconds first{};
  for (uint64_t at = 0; at < num_bytes; at += kBlock) {
    read(at, bytes.data(), std::min(num_bytes - at, kBlock));
    if (at == 0) first = since(begin);
  }
  return first;
}

}  // namespace

bool may_pass(int error) {
  constexpr std::array kPassing{
      EIO,       EAGAIN,       EINTR,        ETIMEDOUT,    ESTALE,
      ENOTCONN,  ECONNRESET,   ECONNABORTED, ECONNREFUSED, EHOSTDOWN,
      EREMOTEIO, EHOSTUNREACH, ENETUNREACH,  ENETRESET,    EBUSY};
  return std::ranges::find(kPassing, error) != kPassing.end();
}

OpenFile::OpenFile(const fs::path& file)
    : descriptor_(with_patience([&] {
        return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      })),
      error_(descriptor_ < 0 ? errno : 0) {}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

uint64_t read_at(int descriptor, uint64_t offset, void* bytes,
                 uint64_t num_bytes) noexcept {
  uint64_t done = 0;
  while (done < num_bytes) {
    const ssize_t got = with_patience([&] {
      return ::pread(descriptor, static_cast<char*>(bytes) + done,
                     num_bytes - done, static_cast<off_t>(offset + done));
    });
    if (got < 0) return done;
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
  }
  errno = 0;
  return done;
}

std::optional<PackedFile> read_packed(const fs::path& path) {
  std::optional<Place> place = place_of(path);
  if (!place) return std::nullopt;
  PackedFile file{{}, std::move(place->error)};
  if (!file.error.empty()) return file;
  const IndexedImage& image = *place->image;
  file.bytes.resize(image.bytes);
  file.error = place->index->read(image.shard, image.offset, file.bytes.data(),
                                  image.bytes);
  if (file.error.empty() &&
      XXH3_64bits(file.bytes.data(), file.bytes.size()) != image.digest) {
    file.error = "its bytes in " + place->index->shard(image.shard).string() +
                 " are damaged";
  }
  if (!file.error.empty()) file.bytes.clear();
  return file;
}

std::optional<std::chrono::microseconds> warm(const fs::path& path,
                                              uint64_t most) noexcept {
  try {
    const Clock::time_point begin = Clock::now();
    if (const auto place = place_of(path)) {
      if (!place->error.empty() || place->image->bytes > most) return {};
      return read_blocks(
          place->image->bytes, [&](uint64_t at, char* bytes, uint64_t count) {
            place->index->read(place->image->shard, place->image->offset + at,
                               bytes, count);
          });
    }
    const OpenFile file(path);
    struct stat status {};
    if (file.descriptor() < 0 || ::fstat(file.descriptor(), &status) != 0 ||
        !S_ISREG(status.st_mode) ||
        static_cast<uint64_t>(status.st_size) > most) {
      return {};
    }
    const auto opened = since(begin);
    return opened + read_blocks(static_cast<uint64_t>(status.st_size),
                                [&](uint64_t at, char* bytes, uint64_t count) {
                                  read_at(file.descriptor(), at, bytes, count);
                                });
  } catch (const std::exception&) {
    return {};  // the next reader of the file reports the failure
  }
}

}  // namespace headroom::packs
