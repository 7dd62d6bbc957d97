// Checksums that file formats prescribe.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom {

// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4. It protects every record
// of the write-ahead log and of TensorBoard files. To continue a checksum, pass
// the checksum of the preceding bytes as `before`.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// CRC-32 as used in zip archives.
uint32_t crc32(std::string_view bytes);

}  // namespace headroom
