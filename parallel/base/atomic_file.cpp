#include "parallel/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom {

bool sync_folder(const std::filesystem::path& folder) {
  const int opened = ::open(folder.empty() ? "." : folder.c_str(),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return false;
  const bool on_disk = ::fsync(opened) == 0;
  // Some network file systems cannot sync a folder and need not.
  const bool refused = !on_disk && (errno == EINVAL || errno == ENOTSUP);
  const int sync_error = errno;
  ::close(opened);
  errno = sync_error;
  return on_disk || refused;
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), partial_path_(path_) {
  partial_path_ += ".partial";
  descriptor_ = ::open(partial_path_.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot be created");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_path_.c_str());
}

void AtomicFile::write(const void* data, std::size_t num_bytes) {
  const char* next = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, num_bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("cannot be written");
    }
    next += written;
    num_bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  HEADROOM_CHECK(descriptor_ >= 0, path_.string() + " is committed already");
  if (::fsync(descriptor_) != 0) fail("cannot be brought to disk");
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0)
    fail("cannot be renamed into place");
  ::close(descriptor_);
  descriptor_ = -1;

  if (!sync_folder(path_.parent_path()))
    fail("is in a folder that cannot be brought to disk");
}

void AtomicFile::fail(const char* action) const {
  const int code = errno;
  throw Error("file",
              path_.string() + " " + action + " (" + std::strerror(code) + ")",
              code == ENOSPC || code == EDQUOT
                  ? "free some space or choose another folder"
                  : "check that the folder exists and may be written",
              ExitCode::kResource);
}

void write_whole_file(const std::filesystem::path& path,
                      std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace headroom
