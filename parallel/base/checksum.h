// Checksums of bytes, as files of several formats carry them.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: the check of every record
// of the write-ahead log and of TensorBoard's files. It goes on from `before`,
// the checksum of the bytes ahead of these; 0 starts.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// CRC-32 as zip archives have it.
uint32_t crc32(std::string_view bytes);

}  // namespace headroom
