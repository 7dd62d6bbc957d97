#include "configs/class_names.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "parallel/base/check.h"

namespace headroom {
namespace {

struct Sequence {
  size_t length = 0;  // 0: no character begins so
  uint32_t bits = 0;  // of the first byte
  uint32_t least = 0;
};

Sequence sequence_of(unsigned char first) {
  if (first < 0x80) return {1, first, 0};
  if ((first & 0xE0) == 0xC0) return {2, first & 0x1FU, 0x80};
  if ((first & 0xF0) == 0xE0) return {3, first & 0x0FU, 0x800};
  if ((first & 0xF8) == 0xF0) return {4, first & 0x07U, 0x10000};
  return {};
}

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Sequence sequence = sequence_of(static_cast<unsigned char>(text[i]));
    if (sequence.length == 0 || text.size() - i < sequence.length) return false;
    uint32_t character = sequence.bits;
    for (size_t k = 1; k < sequence.length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xC0) != 0x80) return false;
      character = character << 6 | (byte & 0x3FU);
    }
    const bool is_surrogate = character >= 0xD800 && character < 0xE000;
    if (character < sequence.least || character > 0x10FFFF || is_surrogate) {
      return false;
    }
    i += sequence.length;
  }
  return true;
}

}  // namespace

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (is_utf8(names[i])) continue;
    throw Error("data",
                file.string() + ": the name of class " + std::to_string(i) +
                    " is not UTF-8",
                "save the file as UTF-8 (for XML, declare its encoding)");
  }
}

}  // namespace headroom
