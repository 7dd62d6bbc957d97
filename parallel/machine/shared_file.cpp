#include "parallel/machine/shared_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom {

std::unique_ptr<SharedFile> SharedFile::make(const char* name) {
  const int descriptor = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return nullptr;
  std::unique_ptr<SharedFile> file(new SharedFile(descriptor));
  return fchmod(descriptor, 0600) == 0 ? std::move(file) : nullptr;
}

std::unique_ptr<SharedFile> SharedFile::open(int descriptor) {
  const std::string path = cat("/proc/self/fd/", descriptor);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return nullptr;
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // programs of the user need it not
  return std::unique_ptr<SharedFile>(new SharedFile(opened));
}

SharedFile::~SharedFile() { close(descriptor_); }

uint64_t SharedFile::size() const {
  struct stat status {};
  return fstat(descriptor_, &status) == 0
             ? static_cast<uint64_t>(status.st_size)
             : 0;
}

bool SharedFile::resize(uint64_t bytes) {
  return ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0;
}

bool SharedFile::allocate(uint64_t bytes) {
  errno = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  return errno == 0;
}

bool SharedFile::write(uint64_t at, const void* bytes, uint64_t num_bytes) {
  const auto* from = static_cast<const char*>(bytes);
  while (num_bytes > 0) {
    const ssize_t written =
        pwrite(descriptor_, from, num_bytes, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    at += static_cast<uint64_t>(written);
    num_bytes -= static_cast<uint64_t>(written);
  }
  return true;
}

bool SharedFile::seal() {
  return fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
}

bool SharedFile::is_sealed() const {
  return (fcntl(descriptor_, F_GET_SEALS) & F_SEAL_SHRINK) != 0;
}

bool SharedFile::clear() {
  return fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                   static_cast<off_t>(size())) == 0;
}

// A user has a lock of the other kind, on the whole file.
bool SharedFile::begin_use() {
  struct flock use {};
  use.l_type = F_RDLCK;
  return fcntl(descriptor_, F_OFD_SETLK, &use) == 0;
}

bool SharedFile::has_other_users() const {
  struct flock use {};
  use.l_type = F_WRLCK;
  return fcntl(descriptor_, F_OFD_GETLK, &use) != 0 || use.l_type != F_UNLCK;
}

std::shared_ptr<std::byte> SharedFile::map(uint64_t at, uint64_t bytes,
                                           bool is_writable) const {
  void* const begin =
      mmap(nullptr, bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
           MAP_SHARED, descriptor_, static_cast<off_t>(at));
  if (begin == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(begin),
          [bytes](std::byte* mapped) { munmap(mapped, bytes); }};
}

SharedFile::Lock::Lock(const SharedFile& file) : file_(file) {
  while (flock(file_.descriptor_, LOCK_EX) != 0) {
    HEADROOM_CHECK(errno == EINTR, "a file in memory that cannot be locked");
  }
}

SharedFile::Lock::~Lock() { flock(file_.descriptor_, LOCK_UN); }

}  // namespace headroom
