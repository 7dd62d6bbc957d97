#include "parallel/collectives/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::collectives {
namespace {

constexpr size_t kTokenPage = 4096;  // holds the token, before the data

[[noreturn]] void fail(const std::string& what, int code) {
  throw Error("shared_memory", what + ": " + std::strerror(code),
              "ranks of this host exchange over the network instead");
}

}  // namespace

SharedSegment::SharedSegment(const SegmentAddress& address, int descriptor,
                             size_t bytes)
    : address_(address),
      descriptor_(descriptor),
      mapped_bytes_(kTokenPage + bytes) {
  void* const start = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                           MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) {
    const int code = errno;
    close(std::exchange(descriptor_, -1));
    fail(cat("cannot map ", mapped_bytes_, " bytes"), code);
  }
  data_ = static_cast<std::byte*>(start) + kTokenPage;
}

SharedSegment SharedSegment::create(size_t bytes) {
  const int descriptor = memfd_create("headroom", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot create memory to share", errno);
  const int refused =
      posix_fallocate(descriptor, 0, static_cast<off_t>(kTokenPage + bytes));
  if (refused != 0) {
    close(descriptor);
    fail(cat("cannot have ", bytes, " bytes to share"), refused);
  }
  SegmentAddress address{getpid(), descriptor, {}};
  SharedSegment segment(address, descriptor, bytes);
  if (getrandom(address.token.data(), sizeof(address.token), 0) !=
      sizeof(address.token)) {
    fail("no random numbers", errno);
  }
  std::memcpy(segment.data_ - kTokenPage, address.token.data(),
              sizeof(address.token));
  segment.address_ = address;
  return segment;
}

SharedSegment SharedSegment::open(const SegmentAddress& address, size_t bytes) {
  const std::string path =
      cat("/proc/", address.process, "/fd/", address.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open " + path, errno);
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 ||
      status.st_size != static_cast<off_t>(kTokenPage + bytes)) {
    close(descriptor);
    fail(cat(path, " is no segment of ", bytes, " bytes"), EINVAL);
  }
  SharedSegment segment(address, descriptor, bytes);
  close(std::exchange(segment.descriptor_, -1));
  if (std::memcmp(segment.data_ - kTokenPage, address.token.data(),
                  sizeof(address.token)) != 0) {
    fail(path + " is another segment", EINVAL);
  }
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept {
  *this = std::move(other);
}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) munmap(data_ - kTokenPage, mapped_bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace headroom::collectives
