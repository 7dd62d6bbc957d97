#include "deploy/cli/show/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Terminal::Terminal() : style_(terminal_style_of(STDERR_FILENO)) {}

size_t Terminal::width() const {
  return style_.rewrites_lines ? terminal_size_of(STDERR_FILENO).columns : 0;
}

void Terminal::print(const std::string& given) {
  const std::string line = printable(given);
  print_painted(line.starts_with("warning: ")
                    ? painted("warning:", Colour::kYellow, style_) +
                          line.substr(std::strlen("warning:"))
                    : line);
}

void Terminal::print_header(const std::string& line) {
  print_painted(painted(printable(line), Colour::kBold, style_));
}

void Terminal::print_painted(const std::string& line) {
  std::lock_guard lock(mutex_);
  if (live_.empty()) {
    write_all(line + "\n");
  } else {
    write_all(kClearLine + line + "\n" + live_);
  }
}

void Terminal::set_live(const std::string& line) {
  std::lock_guard lock(mutex_);
  if (!style_.rewrites_lines || line == live_) return;
  live_ = line;
  write_all(kClearLine + live_);
}

void Terminal::clear_live() {
  std::lock_guard lock(mutex_);
  if (!live_.empty()) write_all(kClearLine);
  live_.clear();
}

void Terminal::write_all(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = write(STDERR_FILENO, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // a closed stderr must not end a run
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += "  " + padded(row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace headroom::cli
