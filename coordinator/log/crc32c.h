// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: the check of every
// record of the write-ahead log.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::coordinator {

// Of `bytes`, going on from `crc` (0: from the start).
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

}  // namespace headroom::coordinator
