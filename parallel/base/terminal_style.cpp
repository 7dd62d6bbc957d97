#include "parallel/base/terminal_style.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "parallel/base/utf8.h"

namespace headroom {
namespace {

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

void end_if_output_has_no_reader() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) < 1 || (output.revents & POLLERR) == 0) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

}  // namespace headroom
