// FileDescriptor: owns an open file and closes it in its destructor.
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

// Makes an unnamed file with `text`: it passes run.yaml to a child.
inline std::unique_ptr<FileDescriptor> memory_file(const std::string& text) {
  auto file =
      std::make_unique<FileDescriptor>(memfd_create("run.yaml", MFD_CLOEXEC));
  const ssize_t written = write(file->get(), text.data(), text.size());
  HEADROOM_CHECK(written == static_cast<ssize_t>(text.size()), "memory file");
  return file;
}

}  // namespace headroom::cli
