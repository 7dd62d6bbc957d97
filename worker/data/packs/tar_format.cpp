#include "worker/data/packs/tar_format.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::packs {
namespace {

constexpr size_t kNameBytes = 100;

void put(std::string& block, size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(),
            block.begin() + static_cast<std::ptrdiff_t>(at));
}

// Writes `digits` octal digits; the block already contains the terminating
// zero.
void put_octal(std::string& block, size_t at, int digits, uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llo", digits,
                static_cast<unsigned long long>(number));
  put(block, at, text);
}

std::string header_block(std::string_view name, uint64_t num_bytes, char kind) {
  std::string block(kTarBlock, '\0');
  put(block, 0, name.substr(0, kNameBytes));
  put_octal(block, 100, 7, 0644);
  put_octal(block, 108, 7, 0);  // owner
  put_octal(block, 116, 7, 0);  // group
  put_octal(block, 124, 11, num_bytes);
  put_octal(block, 136, 11, 0);  // date
  put(block, 148, "        ");   // blanks while the checksum is computed
  block[156] = kind;
  put(block, 257, std::string_view("ustar\00000", 8));
  uint64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put_octal(block, 148, 6, sum);
  block[154] = '\0';
  return block;
}

// "LENGTH path=NAME\n", where LENGTH includes its own digits.
std::string pax_record(std::string_view name) {
  const size_t rest = std::string_view(" path=\n").size() + name.size();
  size_t length = rest + 1;
  while (rest + std::to_string(length).size() != length) {
    length = rest + std::to_string(length).size();
  }
  return cat(length, " path=", std::string(name), "\n");
}

}  // namespace

std::string tar_header(std::string_view name, uint64_t num_bytes) {
  HEADROOM_CHECK(num_bytes < uint64_t{1} << 33,
                 cat(num_bytes, " bytes in a tar archive"));
  HEADROOM_CHECK(!name.empty() && name.find('\0') == std::string_view::npos,
                 "a name in a tar archive");
  std::string bytes;
  if (name.size() > kNameBytes) {
    const std::string record = pax_record(name);
    bytes = header_block("pax", record.size(), 'x') + record +
            tar_padding(record.size());
  }
  return bytes + header_block(name, num_bytes, '0');
}

std::string tar_padding(uint64_t num_bytes) {
  return std::string((kTarBlock - num_bytes % kTarBlock) % kTarBlock, '\0');
}

std::string tar_end() { return std::string(2 * kTarBlock, '\0'); }

}  // namespace headroom::packs
