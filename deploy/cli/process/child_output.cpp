#include "deploy/cli/process/child_output.h"

#include <cctype>
#include <sstream>

namespace headroom::cli {
namespace {

constexpr std::string_view kPattern = "00:00:00 ";

bool is_log_line(std::string_view line) {
  if (line.size() <= kPattern.size()) return false;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (kPattern[i] == '0' ? !digit : line[i] != kPattern[i]) return false;
  }
  return true;
}

bool is_refusal(std::string_view line) {
  return line.starts_with('[') && line.find("] ") != std::string_view::npos;
}

}  // namespace

LogLine split_log_line(std::string_view line) {
  if (!is_log_line(line)) return {"output", line};
  const std::string_view rest = line.substr(kPattern.size());
  const size_t blank = rest.find(' ');
  if (blank == std::string_view::npos) return {rest, ""};
  return {rest.substr(0, blank), rest.substr(blank + 1)};
}

bool is_shown_at_once(std::string_view line) {
  const std::string_view level = split_log_line(line).level;
  return level.starts_with("warn") || level.starts_with("err") ||
         level.starts_with("crit");
}

std::string telling_line(const std::string& last_words) {
  std::istringstream lines(last_words);
  std::string line, refusal, plain, any;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    any = line;
    if (is_log_line(line)) continue;
    plain = line;
    if (is_refusal(line)) refusal = line;
  }
  if (!refusal.empty()) return refusal;
  return plain.empty() ? any : plain;
}

}  // namespace headroom::cli
