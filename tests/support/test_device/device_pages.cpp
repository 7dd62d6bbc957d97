#include "tests/support/test_device/device_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <system_error>

namespace headroom {
namespace {

constexpr size_t kRange = size_t{1}
                          << 36;    // addresses; pages are allocated on use
constexpr size_t kAlignment = 256;  // at least that of CUDA's allocator

char* map(int file, int protection) {
  void* const memory =
      mmap(nullptr, kRange, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  return static_cast<char*>(memory);
}

}  // namespace

DevicePages& DevicePages::instance() {
  static auto* const pages = new DevicePages;
  return *pages;
}

DevicePages::DevicePages() {
  const int file = memfd_create("test device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kRange)) != 0) {
    throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  device_ = map(file, PROT_NONE);
  host_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
  free_[0] = kRange;
}

void* DevicePages::take(size_t bytes) {
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->second < whole) continue;
    const size_t offset = block->first;
    if (block->second > whole) free_[offset + whole] = block->second - whole;
    free_.erase(block);
    used_[offset] = whole;
    std::memset(host_ + offset, 0xff, whole);
    return device_ + offset;
  }
  throw std::bad_alloc();
}

void DevicePages::give_back(void* address) {
  const auto offset =
      static_cast<size_t>(static_cast<char*>(address) - device_);
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset);
  auto block = free_.emplace(offset, used->second).first;
  used_.erase(used);
  // Merges it with its free neighbours.
  if (const auto next = std::next(block);
      next != free_.end() && block->first + block->second == next->first) {
    block->second += next->second;
    free_.erase(next);
  }
  if (block == free_.begin()) return;
  if (const auto before = std::prev(block);
      before->first + before->second == block->first) {
    before->second += block->second;
    free_.erase(block);
  }
}

void* DevicePages::host_view(const void* address) const {
  return host_ + (static_cast<const char*>(address) - device_);
}

}  // namespace headroom
