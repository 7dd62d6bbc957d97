#include "deploy/records/line_follower.h"

#include <algorithm>
#include <optional>

#include "parallel/base/regular_file.h"

namespace headroom::records {
namespace {

constexpr size_t kBlock = 1 << 20;
// Longer than a line, because neighbouring lines often end with the same bytes.
constexpr size_t kTail = 64 << 10;

// Whether the file contains `bytes` at `begin`.
bool has_bytes(const RegularFile& file, const std::string& bytes,
               uint64_t begin) {
  return file.read(begin, bytes.size()) == bytes;
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

bool LineFollower::goes_on(const RegularFile& file) const {
  return file.size() >= lines_end_ &&
         has_bytes(file, tail_, lines_end_ - tail_.size());
}

bool LineFollower::half_line_stands(const RegularFile& file) const {
  return file.size() >= read_end_ &&
         (is_skipping_ || has_bytes(file, half_line_, lines_end_));
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
      tail_.clear();  // the tail would lack the skipped bytes
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
  const RegularFile file(file_, Links::kRefused);
  if (!file.is_open()) return;
  const bool is_another = file_number_ != 0 && file.number() != file_number_;
  if (lines_end_ > 0 && (is_another || !goes_on(file))) {
    forget();
    restart();
  } else if (is_another || !half_line_stands(file)) {
    forget_half_line();
  }
  file_number_ = file.number();
  while (read_end_ < file.size()) {
    const std::optional<std::string> block = file.read(read_end_, kBlock);
    if (!block || block->empty()) break;
    take_bytes(*block, take);
  }
}

uint64_t end_of_lines(const std::filesystem::path& path) {
  const RegularFile file(path, Links::kRefused);
  uint64_t end = file.size();
  while (end > 0) {
    const uint64_t begin = end - std::min<uint64_t>(kTail, end);
    const std::optional<std::string> block = file.read(begin, end - begin);
    if (!block || block->size() != end - begin) return 0;
    const size_t feed = block->rfind('\n');
    if (feed != std::string::npos) return begin + feed + 1;
    end = begin;
  }
  return 0;
}

}  // namespace headroom::records
