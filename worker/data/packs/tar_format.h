// Tar archives, as POSIX.1-2001 has them (pax): every program that reads tar
// reads a shard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::packs {

inline constexpr uint64_t kTarBlock = 512;

// What precedes the bytes of a file in the archive. The same name and length
// give the same bytes: there is no date and no owner.
// REQUIRES: a name without a zero byte, fewer than 8 GiB.
std::string tar_header(std::string_view name, uint64_t num_bytes);

// Zeros that fill the last block of a file of that length.
std::string tar_padding(uint64_t num_bytes);

// What ends an archive.
std::string tar_end();

}  // namespace headroom::packs
