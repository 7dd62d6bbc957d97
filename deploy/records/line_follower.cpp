#include "deploy/records/line_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace headroom::records {
namespace {

constexpr size_t kLongestLine = 16 << 20;
constexpr size_t kBlock = 1 << 20;
// Longer than a line: neighbouring lines often have the same ending.
constexpr size_t kTail = 64 << 10;

// A regular file opened for reading; the descriptor is -1 for anything else.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ >= 0 &&
        (::fstat(descriptor_, &status_) != 0 || !S_ISREG(status_.st_mode))) {
      ::close(std::exchange(descriptor_, -1));
    }
  }
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const { return descriptor_; }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  uint64_t number() const { return static_cast<uint64_t>(status_.st_ino); }

 private:
  int descriptor_;
  struct stat status_ {};
};

// Whether the file contains `bytes` at `begin`.
bool has_bytes(int descriptor, const std::string& bytes, uint64_t begin) {
  std::string there(bytes.size(), '\0');
  return ::pread(descriptor, there.data(), there.size(),
                 static_cast<off_t>(begin)) ==
             static_cast<ssize_t>(there.size()) &&
         there == bytes;
}

}  // namespace

void LineFollower::forget_half_line() {
  read_end_ = lines_end_;
  half_line_.clear();
  is_skipping_ = false;
}

void LineFollower::forget() {
  lines_end_ = 0;
  tail_.clear();
  forget_half_line();
}

bool LineFollower::goes_on(int descriptor, uint64_t size) const {
  return size >= lines_end_ &&
         has_bytes(descriptor, tail_, lines_end_ - tail_.size());
}

bool LineFollower::half_line_stands(int descriptor, uint64_t size) const {
  return size >= read_end_ &&
         (is_skipping_ || has_bytes(descriptor, half_line_, lines_end_));
}

// `rest` is the part of the line that was just read, with its line feed.
void LineFollower::end_line(std::string_view rest) {
  lines_end_ = read_end_;
  tail_ += half_line_;
  tail_ += rest;
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
  half_line_.clear();
  is_skipping_ = false;
}

void LineFollower::take_bytes(
    std::string_view bytes, const std::function<void(std::string_view)>& take) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (!is_skipping_ && half_line_.size() + part.size() > kLongestLine) {
      is_skipping_ = true;
      half_line_.clear();
    }
    if (end == std::string_view::npos) {
      read_end_ += part.size();
      if (!is_skipping_) half_line_ += part;
      return;
    }
    read_end_ += end + 1;
    if (is_skipping_) {
      tail_.clear();  // skipped bytes lie between it and this part
    } else if (half_line_.empty()) {
      take(part);
    } else {
      take(half_line_ + std::string(part));
    }
    end_line(bytes.substr(0, end + 1));
    bytes.remove_prefix(end + 1);
  }
}

void LineFollower::read(const std::function<void()>& restart,
                        const std::function<void(std::string_view)>& take) {
  const OpenFile file(file_);
  if (file.descriptor() < 0) return;
  const bool is_another = file_number_ != 0 && file.number() != file_number_;
  if (lines_end_ > 0 &&
      (is_another || !goes_on(file.descriptor(), file.size()))) {
    forget();
    restart();
  } else if (is_another || !half_line_stands(file.descriptor(), file.size())) {
    forget_half_line();
  }
  file_number_ = file.number();
  std::string block;
  while (read_end_ < file.size()) {
    block.resize(std::min<uint64_t>(kBlock, file.size() - read_end_));
    const ssize_t count = ::pread(file.descriptor(), block.data(), block.size(),
                                  static_cast<off_t>(read_end_));
    if (count <= 0) break;
    take_bytes({block.data(), static_cast<size_t>(count)}, take);
  }
}

uint64_t end_of_lines(const std::filesystem::path& path) {
  const OpenFile file(path);
  uint64_t end = file.descriptor() < 0 ? 0 : file.size();
  std::string block;
  while (end > 0) {
    block.resize(std::min<uint64_t>(kTail, end));
    const uint64_t begin = end - block.size();
    if (::pread(file.descriptor(), block.data(), block.size(),
                static_cast<off_t>(begin)) !=
        static_cast<ssize_t>(block.size())) {
      return 0;
    }
    const size_t feed = block.rfind('\n');
    if (feed != std::string::npos) return begin + feed + 1;
    end = begin;
  }
  return 0;
}

}  // namespace headroom::records
