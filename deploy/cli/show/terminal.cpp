#include "deploy/cli/show/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

constexpr const char* kClearLine = "\r\033[K";

bool stderr_is_interactive() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && kind != nullptr &&
         std::string_view(kind) != "dumb";
}

}  // namespace

Terminal::Terminal() : is_interactive_(stderr_is_interactive()) {}

size_t Terminal::width() const {
  winsize size{};
  if (!is_interactive_ || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0) {
    return 0;
  }
  // The last column makes some terminals wrap.
  return size.ws_col > 1 ? size.ws_col - 1u : 0;
}

void Terminal::print(const std::string& given) {
  const std::string line = printable(given);
  std::lock_guard lock(mutex_);
  if (live_.empty()) {
    write_all(line + "\n");
  } else {
    write_all(kClearLine + line + "\n" + live_);
  }
}

void Terminal::set_live(const std::string& line) {
  std::lock_guard lock(mutex_);
  if (!is_interactive_ || line == live_) return;
  live_ = line;
  write_all(kClearLine + live_);
}

void Terminal::end_live() {
  std::lock_guard lock(mutex_);
  if (!live_.empty()) write_all("\n");
  live_.clear();
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
