#include "configs/yaml/line_reader.h"

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kUnbrokenSpace = "\xC2\xA0";
constexpr std::string_view kBlanks = " \t\r\n\f\v";
constexpr char kEndOfFile = '\x1A';  // Ctrl-Z

bool is_plain(std::string_view text) {
  return text.find_first_of("\r\xEF\xC2\x1A") == std::string_view::npos;
}

}  // namespace

std::string plain_text(std::string text) {
  if (is_plain(text)) return text;
  const size_t last = text.find_last_not_of(std::string(kBlanks) + kEndOfFile);
  const size_t end_mark =
      text.find(kEndOfFile, last == std::string::npos ? 0 : last);
  const std::string_view all =
      std::string_view(text).substr(0, std::min(end_mark, text.size()));
  std::string plain;
  plain.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view rest = all.substr(i);
    if (rest.starts_with(kByteOrderMark)) {
      i += kByteOrderMark.size() - 1;
    } else if (rest.starts_with(kUnbrokenSpace)) {
      plain += ' ';
      i += kUnbrokenSpace.size() - 1;
    } else if (all[i] == '\r') {
      if (!rest.substr(1).starts_with('\n')) plain += '\n';
    } else {
      plain += all[i];
    }
  }
  return plain;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string_view unquoted(std::string_view text) {
  text = trimmed(text);
  const bool is_quoted = text.size() >= 2 && text.front() == text.back() &&
                         (text.front() == '"' || text.front() == '\'');
  return is_quoted ? trimmed(text.substr(1, text.size() - 2)) : text;
}

LineReader::LineReader(std::string_view text) : left_(text) {
  if (is_plain(text)) return;
  plain_ = plain_text(std::string(text));
  left_ = plain_;
}

bool LineReader::next() {
  if (left_.empty()) return false;
  const size_t end = std::min(left_.find('\n'), left_.size());
  line_ = left_.substr(0, end);
  left_.remove_prefix(std::min(end + 1, left_.size()));
  ++number_;
  return true;
}

}  // namespace headroom
