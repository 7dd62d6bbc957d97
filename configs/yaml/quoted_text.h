// Text as a YAML scalar in double quotes, so that a reader takes it neither for
// a number nor for a comment.
#pragma once

#include <string>

namespace headroom::yaml {

inline std::string quoted_text(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      result += "\\x";
      result += kHex[byte / 16];
      result += kHex[byte % 16];
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace headroom::yaml
