#include "worker/data/packs/packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "parallel/base/check.h"
#include "worker/data/packs/pack_index.h"

namespace headroom::packs {
namespace {

namespace fs = std::filesystem;

// Pauses before the second and later attempts.
constexpr std::array<std::chrono::milliseconds, 3> kPauses{
    std::chrono::milliseconds(100), std::chrono::milliseconds(500),
    std::chrono::milliseconds(2000)};

// Where a path enters an archive.
struct Member {
  fs::path shard;
  std::string name;
};

std::optional<Member> member_of(const fs::path& path) {
  std::error_code error;
  for (fs::path folder = path.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (fs::is_directory(folder, error)) return std::nullopt;
    if (!fs::is_regular_file(folder, error)) continue;
    return Member{folder, path.lexically_relative(folder).string()};
  }
  return std::nullopt;
}

// "train" of "train-00003.tar"; "" of other names.
std::string split_of(const fs::path& shard) {
  const std::string stem = shard.stem().string();
  const size_t dash = stem.rfind('-');
  return dash == std::string::npos ? "" : stem.substr(0, dash);
}

struct Found {
  std::shared_ptr<const PackIndex> index;
  int64_t image = 0;
  std::string error;
};

Found find(const fs::path& path) {
  Found found;
  const auto member = member_of(path);
  if (!member) {
    found.error = "cannot be opened: Not a directory";
    return found;
  }
  const std::string split = split_of(member->shard);
  std::error_code error;
  const fs::path index = member->shard.parent_path() / index_name(split);
  if (split.empty() || !fs::exists(index, error)) {
    found.error = member->shard.string() + " has no index beside it";
    return found;
  }
  try {
    found.index = open_index(index);
  } catch (const Error& refusal) {
    found.error = refusal.text();
    return found;
  }
  const auto image = found.index->find(member->name);
  if (!image || found.index->path(*image) != member->shard / member->name) {
    found.error = "is not in " + index.string();
  } else {
    found.image = *image;
  }
  return found;
}

}  // namespace

uint64_t read_at(int descriptor, uint64_t offset, void* bytes,
                 uint64_t num_bytes) noexcept {
  uint64_t done = 0;
  size_t failures = 0;
  while (done < num_bytes) {
    const ssize_t got =
        ::pread(descriptor, static_cast<char*>(bytes) + done, num_bytes - done,
                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int why = errno;
      if (why == EBADF || why == EISDIR || failures == kPauses.size()) {
        errno = why;
        return done;
      }
      std::this_thread::sleep_for(kPauses[failures++]);
      continue;
    }
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
  }
  errno = 0;
  return done;
}

PackedFile read_packed(const fs::path& path) {
  PackedFile file;
  const Found found = find(path);
  file.error = found.error;
  if (!file.error.empty()) return file;
  const PackedPlace& place = found.index->place(found.image);
  if (place.bytes > kMostFileBytes ||
      place.shard >= found.index->num_shards()) {
    file.error = "its entry in " + found.index->file().string() + " is damaged";
    return file;
  }
  file.bytes.resize(place.bytes);
  file.error = found.index->read(place.shard, place.offset, file.bytes.data(),
                                 place.bytes);
  if (file.error.empty() &&
      XXH3_64bits(file.bytes.data(), file.bytes.size()) != place.digest) {
    file.error = "its bytes in " + found.index->shard(place.shard).string() +
                 " are damaged";
  }
  if (!file.error.empty()) file.bytes.clear();
  return file;
}

void warm(const fs::path& path, uint64_t most) noexcept {
  try {
    const int descriptor =
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      if (errno == ENOTDIR) read_packed(path);
      return;
    }
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
        static_cast<uint64_t>(status.st_size) <= most) {
      std::vector<char> bytes(size_t{256} << 10);
      for (off_t at = 0; at < status.st_size;) {
        const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), at);
        if (got <= 0) break;
        at += got;
      }
    }
    ::close(descriptor);
  } catch (const std::exception&) {
    // Whoever reads it next says why it cannot be read.
  }
}

}  // namespace headroom::packs
