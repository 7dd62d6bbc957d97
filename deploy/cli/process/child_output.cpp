#include "deploy/cli/process/child_output.h"

#include <cctype>
#include <cerrno>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "parallel/base/check.h"

namespace headroom::cli {
namespace {
constexpr size_t kLongestLine = 8192;
}

LineReader::LineReader(int fd, std::function<void(std::string)> on_line)
    : fd_(fd), stop_fd_(eventfd(0, EFD_CLOEXEC)), on_line_(std::move(on_line)) {
  HEADROOM_CHECK(stop_fd_ >= 0, "eventfd");
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

LineReader::~LineReader() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof one);
  thread_.join();
  close(fd_);
  close(stop_fd_);
}

bool LineReader::read_some() {
  char buffer[4096];
  ssize_t count;
  while ((count = read(fd_, buffer, sizeof buffer)) > 0) {
    for (char c : std::string_view(buffer, static_cast<size_t>(count))) {
      if (c != '\n') partial_ += c;
      if (c == '\n' || partial_.size() >= kLongestLine) {
        on_line_(std::exchange(partial_, ""));
      }
    }
  }
  return count < 0 && (errno == EAGAIN || errno == EINTR);
}

void LineReader::run() {
  pollfd waits[2] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  bool open = true;
  while (open) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    open = read_some() && (waits[1].revents & POLLIN) == 0;
  }
  if (!partial_.empty()) on_line_(std::exchange(partial_, ""));
}

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
  std::string line, plain, any;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    any = line;
    if (is_log_line(line)) continue;
    plain = line;
  }
  return plain.empty() ? any : plain;
}

}  // namespace headroom::cli
