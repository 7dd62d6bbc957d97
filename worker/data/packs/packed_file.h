// Files of their own and files in packs, read alike: a path that goes through
// an archive, packs/train-00000.tar/images/a.jpg, means the file in it.
//
// Shared and distant file systems fail now and then: a read that fails is tried
// again, a few times within some seconds, before it is an error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace headroom::packs {

// Fills `bytes` from `offset` on and returns how many there were: fewer only
// where the file ends, or where it cannot be read; errno is 0 or says why.
uint64_t read_at(int descriptor, uint64_t offset, void* bytes,
                 uint64_t num_bytes) noexcept;

struct PackedFile {
  std::vector<uint8_t> bytes;
  std::string error;  // why it cannot be had; "" if it can
};
// The file that `path` means in a pack: bytes that are those that were packed,
// or an error that names the shard.
PackedFile read_packed(const std::filesystem::path& path);

// Reads the file that `path` means, so that the system has it in memory when it
// is wanted; of a longer one than `most` bytes, nothing. Never fails.
void warm(const std::filesystem::path& path, uint64_t most) noexcept;

}  // namespace headroom::packs
