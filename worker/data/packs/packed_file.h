// Reads ordinary files and files in packs through the same functions. A path
// into an archive, packs/train-00000.tar/images/a.jpg, means the file inside
// the archive.
//
// Shared and remote file systems sometimes fail for a short time. A call that
// fails with an error that may be temporary is repeated a few times, within a
// few seconds, before the error is reported.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace headroom::packs {

// Pauses before the retries.
inline constexpr std::array<std::chrono::milliseconds, 3> kPauses{
    std::chrono::milliseconds(100), std::chrono::milliseconds(500),
    std::chrono::milliseconds(2000)};

// Whether an error of a file system may be temporary.
bool may_pass(int error);

// Calls a system call until it succeeds or fails permanently. The call returns
// a negative number and sets errno if it fails.
template <typename Call>
auto with_patience(const Call& call) {
  auto result = call();
  for (const std::chrono::milliseconds pause : kPauses) {
    if (result >= 0 || !may_pass(errno)) break;
    std::this_thread::sleep_for(pause);
    result = call();
  }
  return result;
}

// A file that is open for reading; closed by the destructor.
class OpenFile {
 public:
  // If the file cannot be opened, error() returns the errno.
  explicit OpenFile(const std::filesystem::path& file);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }  // -1 if not open
  int error() const { return error_; }

 private:
  int descriptor_ = -1;
  int error_ = 0;
};

// Reads into `bytes` from `offset` on and returns the number of bytes read.
// That number is smaller than `num_bytes` only at the file's end (errno is 0)
// or after a failure (errno is the reason).
uint64_t read_at(int descriptor, uint64_t offset, void* bytes,
                 uint64_t num_bytes) noexcept;

struct PackedFile {
  std::vector<uint8_t> bytes;
  std::string error;  // why the file cannot be read; "" if it can
};
// Reads the file at `path` in a pack. Checks the bytes by their checksum; if it
// does not match, `error` names the shard. Returns nullopt if the path does not
// lead into an archive.
std::optional<PackedFile> read_packed(const std::filesystem::path& path);

// Reads the file at `path`, also one in a pack, into the system's cache, unless
// it is longer than `most` bytes. Returns the time until its first bytes
// arrived, nullopt if the file was not read. Never throws.
std::optional<std::chrono::microseconds> warm(const std::filesystem::path& path,
                                              uint64_t most) noexcept;

}  // namespace headroom::packs
