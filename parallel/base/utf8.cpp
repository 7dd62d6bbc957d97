#include "parallel/base/utf8.h"

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <cwchar>

namespace headroom {
namespace {

// The length of the first character in `bytes`, or 0 if the bytes are not valid
// UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
size_t character_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (bytes.size() < length) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = character_length(bytes);
    if (length == 0) {
      text += '?';
      bytes.remove_prefix(1);
    } else {
      text += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return text;
}

namespace {

// True for control characters (U+0000 to U+001F, U+007F to U+009F) and
// direction marks (U+202A to U+202E, U+2066 to U+2069).
bool commands_a_terminal(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<uint8_t>(character[i]);
  };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
}

}  // namespace

std::string printable(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  const std::string valid = valid_utf8(bytes);
  std::string text;
  for (std::string_view rest = valid; !rest.empty();) {
    const std::string_view character = rest.substr(0, character_length(rest));
    rest.remove_prefix(character.size());
    if (character == "\n" || character == "\t" ||
        !commands_a_terminal(character)) {
      text += character;
      continue;
    }
    for (const char c : character) {
      const auto byte = static_cast<uint8_t>(c);
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return text;
}

std::string shortened(std::string_view bytes, size_t max_bytes) {
  constexpr std::string_view kCut = "...";
  const std::string text = printable(bytes.substr(0, max_bytes));
  if (bytes.size() <= max_bytes && text.size() <= max_bytes) return text;
  size_t length = std::min(text.size(), max_bytes - kCut.size());
  while (length > 0 && (static_cast<uint8_t>(text[length]) & 0xC0) == 0x80) {
    --length;
  }
  return text.substr(0, length).append(kCut);
}

std::string short_line(std::string_view bytes, size_t max_bytes) {
  std::string text = shortened(bytes, max_bytes);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

size_t display_width(std::string_view text) {
  // Uses the system's table of widths in a UTF-8 locale, because the process
  // may run under another locale.
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return text.size();
  const std::string valid = valid_utf8(text);
  const locale_t before = uselocale(utf8);
  size_t columns = 0;
  std::mbstate_t state{};
  for (size_t at = 0; at < valid.size();) {
    wchar_t character = 0;
    const size_t length =
        std::mbrtowc(&character, &valid[at], valid.size() - at, &state);
    at += std::clamp<size_t>(length, 1, 4);  // length is 0 for NUL
    columns += static_cast<size_t>(std::max(0, wcwidth(character)));
  }
  uselocale(before);
  return columns;
}

std::string padded(std::string_view text, size_t columns) {
  const size_t taken = display_width(text);
  return std::string(text) +
         std::string(columns > taken ? columns - taken : 0, ' ');
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') ||
           std::string_view("/._-+=:,@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) {
    return text;
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace headroom
