#include "parallel/base/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "parallel/base/utf8.h"

namespace headroom {
namespace {

constexpr const char* kClearLine = "\r\033[K";

bool speaks_utf8(const EnvironmentVariable& variable) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = variable(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale;
    for (const char* c = value; *c != '\0'; ++c) {
      if (*c != '-') {
        locale += static_cast<char>(std::tolower(static_cast<uint8_t>(*c)));
      }
    }
    return locale.find("utf8") != std::string::npos;
  }
  return false;
}

bool is_set(const char* value) { return value != nullptr && *value != '\0'; }

const char* escape_of(Colour colour) {
  switch (colour) {
    case Colour::kBold:
      return "\033[1m";
    case Colour::kDim:
      return "\033[2m";
    case Colour::kGreen:
      return "\033[32m";
    case Colour::kCyan:
      return "\033[36m";
    case Colour::kYellow:
      return "\033[33m";
    case Colour::kRed:
      return "\033[31m";
  }
  return "";
}

// The number of bytes of the longest prefix that fits into `columns`.
size_t bytes_within(std::string_view text, size_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end + 1;
    while (next < text.size() &&
           (static_cast<uint8_t>(text[next]) & 0xC0) == 0x80) {
      ++next;
    }
    if (display_width(text.substr(0, next)) > columns) break;
    end = next;
  }
  return end;
}

void write_to_standard_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // a closed stderr must not end a run
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

TerminalStyle terminal_style(bool is_terminal,
                             const EnvironmentVariable& variable) {
  const char* kind = variable("TERM");
  const char* ci = variable("CI");
  const bool is_ci = is_set(ci) && std::string_view(ci) != "false";
  TerminalStyle style;
  style.rewrites_lines =
      is_terminal && is_set(kind) && std::string_view(kind) != "dumb" && !is_ci;
  style.has_colours = style.rewrites_lines && !is_set(variable("NO_COLOR"));
  style.is_unicode = speaks_utf8(variable);
  return style;
}

TerminalStyle terminal_style_of(int file_descriptor) {
  return terminal_style(isatty(file_descriptor) == 1,
                        [](const char* name) { return std::getenv(name); });
}

TerminalSize terminal_size_of(int file_descriptor) {
  winsize size{};
  if (ioctl(file_descriptor, TIOCGWINSZ, &size) != 0) return {};
  return {.columns = size.ws_col > 1 ? size.ws_col - 1u : 0,
          .lines = size.ws_row};
}

std::string painted(const std::string& text, Colour colour,
                    const TerminalStyle& style) {
  if (!style.has_colours || text.empty()) return text;
  return escape_of(colour) + text + "\033[0m";
}

std::string cut_line(std::string_view line, size_t columns, bool is_unicode) {
  if (columns == 0 || display_width(line) <= columns) return std::string(line);
  const std::string_view mark = is_unicode ? "…" : "~";
  std::string text(line.substr(0, bytes_within(line, columns - 1)));
  const bool ends_a_word = line[text.size()] == ' ';
  const size_t space = text.rfind(' ');
  if (!ends_a_word && space != std::string::npos) text.resize(space);
  while (text.ends_with(' ')) text.pop_back();
  return text.append(mark);
}

Terminal::Output Terminal::standard_error() {
  return {.style = terminal_style_of(STDERR_FILENO),
          .write = write_to_standard_error,
          .columns = [] { return terminal_size_of(STDERR_FILENO).columns; }};
}

Terminal::Terminal(Output output) : output_(std::move(output)) {}

size_t Terminal::width() const {
  return style().rewrites_lines ? output_.columns() : 0;
}

void Terminal::print(const std::string& given) {
  constexpr std::string_view kWarning = "warning:";
  const std::string line = printable(given);
  print_painted(line.starts_with("warning: ")
                    ? painted(std::string(kWarning), Colour::kYellow, style()) +
                          line.substr(kWarning.size())
                    : line);
}

void Terminal::print_header(const std::string& line) {
  print_painted(painted(printable(line), Colour::kBold, style()));
}

// Uses one write, because other processes may write to the same terminal.
void Terminal::print_painted(const std::string& line) {
  const std::lock_guard lock(mutex_);
  output_.write(live_.empty() ? line + "\n" : kClearLine + line + "\n" + live_);
}

void Terminal::above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  if (!live_.empty()) output_.write(kClearLine);
  print();
  if (!live_.empty()) output_.write(live_);
}

void Terminal::set_live(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!style().rewrites_lines || line == live_) return;
  live_ = line;
  output_.write(kClearLine + live_);
}

void Terminal::clear_live() {
  const std::lock_guard lock(mutex_);
  if (!live_.empty()) output_.write(kClearLine);
  live_.clear();
}

void end_if_output_has_no_reader() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) < 1 || (output.revents & POLLERR) == 0) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

}  // namespace headroom
