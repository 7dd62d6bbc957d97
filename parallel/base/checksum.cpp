#include "parallel/base/checksum.h"

#include <array>

namespace headroom {
namespace {

using Table = std::array<uint32_t, 256>;

constexpr Table table_of(uint32_t reversed_polynomial) {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? reversed_polynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr Table kCastagnoli = table_of(0x82f63b78);
constexpr Table kZip = table_of(0xedb88320);

uint32_t checksum(const Table& table, std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  return checksum(kCastagnoli, bytes, before);
}

uint32_t crc32(std::string_view bytes) { return checksum(kZip, bytes, 0); }

}  // namespace headroom
