// DevicePages: memory that a program can allocate but not access, as a GPU's.
//
// One anonymous file is mapped twice. The addresses that tensors get are in the
// first mapping, which allows no access, so that a read or write by the host
// ends the test at once. The device's own kernels use the second mapping
// (host_view). All bits of fresh memory are one, which is NaN as a number.
//
// Ownership: one object per process, never destroyed, as an allocator must be.
// Threads: any.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace headroom {

class DevicePages {
 public:
  static DevicePages& instance();

  // Throws std::bad_alloc if the address range is used up.
  void* take(size_t bytes);
  void give_back(void* address);

  // The same bytes at an address that the host can access.
  void* host_view(const void* address) const;

 private:
  DevicePages();

  char* device_ = nullptr;
  char* host_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, size_t> free_, used_;  // offset -> bytes
};

}  // namespace headroom
