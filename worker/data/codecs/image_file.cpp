#include "worker/data/codecs/image_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "parallel/base/units.h"

namespace headroom::codecs {

ImageFile::ImageFile(const std::filesystem::path& file, int64_t max_bytes)
    // A named pipe in a data folder would block an ordinary open for ever.
    : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) {
    throw ImageRefusal(std::string("cannot be opened: ") +
                       std::strerror(errno));
  }
  struct stat status {};
  std::string reason;
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    reason = "not a regular file";
  } else if (status.st_size == 0) {
    reason = "empty file";
  } else if (status.st_size > max_bytes) {
    reason = "file of " + format_bytes(status.st_size) +
             " is above the limit of " + format_bytes(max_bytes);
  }
  if (!reason.empty()) {
    ::close(descriptor_);
    throw ImageRefusal(reason);
  }
  size_ = status.st_size;
}

ImageFile::~ImageFile() { ::close(descriptor_); }

size_t ImageFile::read_at(int64_t offset, std::span<uint8_t> buffer) noexcept {
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got =
        ::pread(descriptor_, buffer.data() + done, buffer.size() - done,
                offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::vector<uint8_t> ImageFile::read_all() {
  std::vector<uint8_t> bytes(static_cast<size_t>(size_));
  if (read_at(0, bytes) != bytes.size()) {
    throw ImageRefusal("cannot be read to its end");
  }
  return bytes;
}

}  // namespace headroom::codecs
