#include "parallel/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace headroom {

namespace {

// Returns -1, with the reason in errno, for anything but a regular file. With
// O_NONBLOCK opening a pipe does not wait for its other end.
int open_regular(const std::filesystem::path& path, int flags,
                 struct stat& status) {
  const int opened =
      ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (opened < 0) return -1;
  const bool is_known = ::fstat(opened, &status) == 0;
  if (is_known && S_ISREG(status.st_mode)) return opened;
  const int reason = is_known ? ENOTSUP : errno;
  ::close(opened);
  errno = reason;
  return -1;
}

}  // namespace

std::string file_fault() {
  if (errno == ELOOP)
    return "it is a symbolic link, which is not followed here";
  if (errno == ENOTSUP) return "it is no regular file";
  return std::strerror(errno);
}

RegularFile::RegularFile(const std::filesystem::path& path, Links links) {
  struct stat status {};
  descriptor_ = open_regular(
      path, O_RDONLY | (links == Links::kRefused ? O_NOFOLLOW : 0), status);
  if (descriptor_ < 0) return;
  size_ = static_cast<uint64_t>(status.st_size);
  number_ = static_cast<uint64_t>(status.st_ino);
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int RegularFile::release() { return std::exchange(descriptor_, -1); }

std::optional<std::string> RegularFile::read(uint64_t begin,
                                             uint64_t most) const {
  std::string text(begin < size_ ? std::min(most, size_ - begin) : 0, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count =
        ::pread(descriptor_, text.data() + filled, text.size() - filled,
                static_cast<off_t>(begin + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;  // the file became shorter
    filled += static_cast<size_t>(count);
  }
  text.resize(filled);
  return text;
}

bool for_each_line(
    const RegularFile& file,
    const std::function<bool(std::string_view line, bool is_whole)>& take) {
  constexpr uint64_t kBlock = 1 << 20;
  std::string text;  // read but not yet taken
  for (uint64_t read = 0;;) {
    const std::optional<std::string> block = file.read(read, kBlock);
    if (!block) return false;
    if (block->empty()) return text.empty() || (take(text, false), true);
    read += block->size();
    const size_t searched = text.size();
    text += *block;
    size_t begin = 0;
    for (size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', begin)) {
      if (!take(std::string_view(text).substr(begin, end - begin), true)) {
        return true;
      }
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > kLongestLine) {
      errno = EFBIG;
      return false;
    }
  }
}

std::optional<std::string> text_of_file(const std::filesystem::path& path,
                                        uint64_t most, Links links) {
  const RegularFile file(path, links);
  if (!file.is_open()) return std::nullopt;
  if (file.size() > most) {
    errno = EFBIG;
    return std::nullopt;
  }
  return file.read(0, most);
}

std::string text_or_none(const std::filesystem::path& path, Links links) {
  return text_of_file(path, kLargestWhole, links).value_or("");
}

std::vector<std::filesystem::path> entries_of(
    const std::filesystem::path& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

}  // namespace headroom
