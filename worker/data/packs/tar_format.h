// Writes tar archives in the POSIX.1-2001 (pax) format, so that any program
// that reads tar can read a shard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::packs {

inline constexpr uint64_t kTarBlock = 512;

// The bytes that precede a file in the archive. Equal names and lengths give
// equal bytes, because dates and owners are not stored. REQUIRES: `name` has no
// zero byte; `num_bytes` is below 8 GiB.
std::string tar_header(std::string_view name, uint64_t num_bytes);

// The zeros that fill the last block of a file of `num_bytes` bytes.
std::string tar_padding(uint64_t num_bytes);

std::string tar_end();

}  // namespace headroom::packs
