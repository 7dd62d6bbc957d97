#include "coordinator/log/crc32c.h"

#include <array>

namespace headroom::coordinator {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> table = make_table();
  crc = ~crc;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

}  // namespace headroom::coordinator
