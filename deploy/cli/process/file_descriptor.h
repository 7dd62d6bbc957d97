// FileDescriptor: an open file that is closed with its owner.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "parallel/base/check.h"

namespace headroom::cli {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {
    HEADROOM_CHECK(fd >= 0, "out of file descriptors");
  }
  ~FileDescriptor() { close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A file without a name that holds `text`: how a child gets its run.yaml.
inline std::unique_ptr<FileDescriptor> memory_file(const std::string& text) {
  auto file =
      std::make_unique<FileDescriptor>(memfd_create("run.yaml", MFD_CLOEXEC));
  const ssize_t written = write(file->get(), text.data(), text.size());
  HEADROOM_CHECK(written == static_cast<ssize_t>(text.size()), "memory file");
  return file;
}

}  // namespace headroom::cli
