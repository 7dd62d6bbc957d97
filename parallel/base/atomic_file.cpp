#include "parallel/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel/base/check.h"

namespace headroom {

bool sync_folder(const std::filesystem::path& folder) {
  const int opened = ::open(folder.empty() ? "." : folder.c_str(),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return false;
  const bool on_disk = ::fsync(opened) == 0;
  // Some network file systems cannot sync a folder and need not.
  const bool refused = !on_disk && (errno == EINVAL || errno == ENOTSUP);
  const int sync_error = errno;
  ::close(opened);
  errno = sync_error;
  return on_disk || refused;
}

bool lock_soon(int descriptor) {
  constexpr auto kPatience = std::chrono::milliseconds(200);
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const bool may_wait = errno == EWOULDBLOCK || errno == EINTR;
    if (!may_wait || std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

bool is_at(int descriptor, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 &&
         ::stat(file.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

int open_locked(const std::filesystem::path& file, int flags) {
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
    if (opened < 0) return -1;
    const bool is_locked = lock_soon(opened);
    if (is_locked && is_at(opened, file)) return opened;
    const int reason = errno;
    ::close(opened);
    errno = reason;
    if (!is_locked) return -1;
  }
  errno = ESTALE;  // another process has replaced the file in every try
  return -1;
}

int open_anew(const std::filesystem::path& path, int flags, mode_t mode) {
  constexpr int kTries = 10;  // tries, if another process creates it each time
  int opened = -1;
  for (int i = 0; i < kTries && opened < 0; ++i) {
    opened = ::open(path.c_str(), flags | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (opened >= 0 || errno != EEXIST) break;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) break;
  }
  return opened;
}

namespace {

// Opens a regular file to append to it; makes it if there is none. Returns -1,
// with the reason in errno, also for a link or a pipe.
int open_to_append(const std::filesystem::path& path) {
  const int opened = ::open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
      0666);
  struct stat status {};
  if (opened < 0) return -1;
  if (::fstat(opened, &status) == 0 && S_ISREG(status.st_mode)) return opened;
  ::close(opened);
  errno = ENOTSUP;
  return -1;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), partial_path_(path_) {
  partial_path_ += kPartialSuffix;
  descriptor_ = open_anew(partial_path_, O_WRONLY, 0666);
  if (descriptor_ < 0) fail("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_path_.c_str());
}

void AtomicFile::write(const void* data, std::size_t num_bytes) {
  if (!write_all(descriptor_, {static_cast<const char*>(data), num_bytes})) {
    fail("cannot be written");
  }
}

void AtomicFile::commit() {
  HEADROOM_CHECK(descriptor_ >= 0, path_.string() + " is committed already");
  if (::fsync(descriptor_) != 0) fail("cannot be brought to disk");
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0)
    fail("cannot be renamed into place");
  ::close(descriptor_);
  descriptor_ = -1;

  if (!sync_folder(path_.parent_path()))
    fail("is in a folder that cannot be brought to disk");
}

void AtomicFile::fail(const char* action) const {
  const int code = errno;
  throw Error("file",
              path_.string() + " " + action + " (" + std::strerror(code) + ")",
              code == ENOSPC || code == EDQUOT
                  ? "free some space or choose another folder"
              : code == EFBIG
                  ? "allow larger files (ulimit -f), or choose another folder "
                    "where the file system's limit is larger"
                  : "check that the folder exists and may be written",
              ExitCode::kResource);
}

void write_whole_file(const std::filesystem::path& path,
                      std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

StreamDigest::StreamDigest()
    : state_(XXH3_createState(),
             [](XXH3_state_t* state) { XXH3_freeState(state); }) {
  HEADROOM_CHECK(state_ != nullptr, "no memory for a digest");
  XXH3_128bits_reset(state_.get());
}

void StreamDigest::add(const void* data, std::size_t num_bytes) {
  XXH3_128bits_update(state_.get(), data, num_bytes);
}

std::string StreamDigest::hex() const {
  // The canonical form is the same on machines of any byte order.
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  std::string hex;
  for (const unsigned char byte : canonical.digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string file_digest(const std::filesystem::path& path) {
  const auto fail = [&path] {
    throw Error(
        "file",
        path.string() + " cannot be read (" + std::strerror(errno) + ")",
        "check the path and its permissions");
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail();
  StreamDigest digest;
  std::vector<unsigned char> buffer(1 << 20);
  while (true) {
    const std::size_t size =
        std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (size == 0) break;
    digest.add(buffer.data(), size);
  }
  if (std::ferror(file.get())) fail();
  return digest.hex();
}

bool LineFile::cut_to(uint64_t size) {
  const int file = open_to_append(path_);
  if (file < 0) return false;
  struct stat status {};
  const bool is_cut = ::fstat(file, &status) == 0 &&
                      (static_cast<uint64_t>(status.st_size) <= size ||
                       ::ftruncate(file, static_cast<off_t>(size)) == 0);
  const int reason = errno;
  ::close(file);
  errno = reason;
  return is_cut;
}

bool LineFile::write() {
  if (waiting_.empty()) return true;
  const int file = open_to_append(path_);
  if (file < 0) return false;
  struct stat before {};
  bool is_written = ::fstat(file, &before) == 0;
  if (is_written && !write_all(file, waiting_)) {
    is_written = false;
    // The write may have ended inside a line: cut the file to its size before.
    const int reason = errno;
    (void)!::ftruncate(file, before.st_size);
    errno = reason;
  }
  const int reason = errno;
  ::close(file);
  errno = reason;
  if (is_written) waiting_.clear();
  return is_written;
}

}  // namespace headroom
