// Files of their own and files in packs, read alike: a path that goes through
// an archive, packs/train-00000.tar/images/a.jpg, means the file in it.
//
// Shared and distant file systems fail now and then: what may pass is tried
// again, a few times within some seconds, before it is an error.
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

// The pauses before the second and later attempts.
inline constexpr std::array<std::chrono::milliseconds, 3> kPauses{
    std::chrono::milliseconds(100), std::chrono::milliseconds(500),
    std::chrono::milliseconds(2000)};

// May an error of a file system pass?
bool may_pass(int error);

// Calls a system call, which returns a negative number and sets errno where it
// fails, until it succeeds or fails for good.
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

// A file that is open for reading.
class OpenFile {
 public:
  // error() says why it could not be opened.
  explicit OpenFile(const std::filesystem::path& file);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }  // -1: not open
  int error() const { return error_; }

 private:
  int descriptor_ = -1;
  int error_ = 0;
};

// Fills `bytes` from `offset` on and returns how many there were: fewer only
// where the file ends, or where it cannot be read; errno is 0 or says why.
uint64_t read_at(int descriptor, uint64_t offset, void* bytes,
                 uint64_t num_bytes) noexcept;

struct PackedFile {
  std::vector<uint8_t> bytes;
  std::string error;  // why it cannot be had; "" if it can
};
// The file that `path` means in a pack: bytes that are those that were packed,
// or an error that names the shard. Nothing where the path goes through none.
std::optional<PackedFile> read_packed(const std::filesystem::path& path);

// Reads the file that `path` means, so that the system has it in memory when it
// is wanted, unless it is longer than `most` bytes. Returns the time to its
// first bytes; nothing where it was not read. Never fails.
std::optional<std::chrono::microseconds> warm(const std::filesystem::path& path,
                                              uint64_t most) noexcept;

}  // namespace headroom::packs
