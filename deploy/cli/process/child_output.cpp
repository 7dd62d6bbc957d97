#include "deploy/cli/process/child_output.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace headroom::cli {
namespace {
constexpr size_t kLongestLine = 8192;
constexpr size_t kAtOnce = 4096;
}  // namespace

LineReader::LineReader(int fd, std::function<void(std::string)> on_line)
    : fd_(fd), stop_fd_(eventfd(0, EFD_CLOEXEC)), on_line_(std::move(on_line)) {
  if (stop_fd_ < 0) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    close(stop_fd_);
    throw;
  }
}

LineReader::~LineReader() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof one);
  thread_.join();
  close(fd_);
  close(stop_fd_);
}

int LineReader::read_some(size_t most) {
  char buffer[kAtOnce];
  const ssize_t count = read(fd_, buffer, std::min(most, sizeof buffer));
  if (count <= 0) {
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }
  for (char c : std::string_view(buffer, static_cast<size_t>(count))) {
    if (c != '\n') partial_ += c;
    if (c == '\n' || partial_.size() >= kLongestLine) {
      on_line_(std::exchange(partial_, ""));
    }
  }
  return static_cast<int>(count);
}

void LineReader::run() {
  pollfd waits[2] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  bool is_open = true;
  while (is_open && (waits[1].revents & POLLIN) == 0) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    is_open = read_some(kAtOnce) >= 0;
  }
  // Bytes that arrive from now on are not read: a grandchild may write without
  // end.
  int arrived = 0;
  if (is_open) ioctl(fd_, FIONREAD, &arrived);
  while (arrived > 0) {
    const int count = read_some(static_cast<size_t>(arrived));
    if (count <= 0) break;
    arrived -= count;
  }
  if (!partial_.empty()) on_line_(std::exchange(partial_, ""));
}

ChildLine child_line(std::string line) {
  if (auto record = log::from_line(line)) {
    std::string text = log::to_text(*record);
    return {std::move(record), std::move(text)};
  }
  return {std::nullopt, std::move(line)};
}

std::string telling_line(const std::deque<ChildLine>& lines) {
  std::string plain, any;
  for (const ChildLine& line : lines) {
    if (line.text.empty()) continue;
    any = line.text;
    if (!line.record) plain = line.text;
  }
  return plain.empty() ? any : plain;
}

}  // namespace headroom::cli
