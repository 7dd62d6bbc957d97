#include "deploy/records/line_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace headroom::records {
namespace {

constexpr size_t kLongestLine = 16 << 20;
constexpr size_t kBlock = 1 << 20;
// More than a line, whose end often is that of the line before.
constexpr size_t kTail = 64 << 10;

}  // namespace

void LineFollower::forget() {
  offset_ = 0;
  tail_.clear();
  half_line_.clear();
  is_skipping_ = false;
  overlong_lines_ = 0;
}

bool LineFollower::goes_on(int descriptor, uint64_t size) const {
  if (size < offset_) return false;
  std::string there(tail_.size(), '\0');
  const auto begin = static_cast<off_t>(offset_ - tail_.size());
  return ::pread(descriptor, there.data(), there.size(), begin) ==
             static_cast<ssize_t>(there.size()) &&
         there == tail_;
}

void LineFollower::take_bytes(
    std::string_view bytes, const std::function<void(std::string_view)>& take) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (!is_skipping_ && half_line_.size() + part.size() > kLongestLine) {
      is_skipping_ = true;
      ++overlong_lines_;
      half_line_.clear();
    }
    if (end == std::string_view::npos) {
      if (!is_skipping_) half_line_ += part;
      return;
    }
    bytes.remove_prefix(end + 1);
    if (is_skipping_) {
      is_skipping_ = false;
    } else if (half_line_.empty()) {
      take(part);
    } else {
      half_line_ += part;
      take(half_line_);
    }
    half_line_.clear();
  }
}

void LineFollower::read(const std::function<void()>& restart,
                        const std::function<void(std::string_view)>& take) {
  const int descriptor = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  const bool is_there = descriptor >= 0 && ::fstat(descriptor, &status) == 0 &&
                        S_ISREG(status.st_mode);
  const auto size = static_cast<uint64_t>(is_there ? status.st_size : 0);
  const auto number = static_cast<uint64_t>(is_there ? status.st_ino : 0);
  const bool is_another = file_number_ != 0 && number != file_number_;
  if (offset_ > 0 && (!is_there || is_another || !goes_on(descriptor, size))) {
    forget();
    restart();
  }
  file_number_ = number;
  std::string block;
  while (is_there && offset_ < size) {
    block.resize(std::min<uint64_t>(kBlock, size - offset_));
    const ssize_t count = ::pread(descriptor, block.data(), block.size(),
                                  static_cast<off_t>(offset_));
    if (count <= 0) break;
    const std::string_view bytes(block.data(), static_cast<size_t>(count));
    offset_ += bytes.size();
    tail_ = (tail_ + std::string(bytes.substr(bytes.size() -
                                              std::min(bytes.size(), kTail))));
    if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
    take_bytes(bytes, take);
  }
  if (descriptor >= 0) ::close(descriptor);
}

}  // namespace headroom::records
