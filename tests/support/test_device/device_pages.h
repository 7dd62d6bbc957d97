// DevicePages: memory that a program can allocate but not access, as a GPU's.
//
// One anonymous file is mapped twice: where tensors think their memory is, no
// access is allowed, so that a read or a write by the host ends the test at
// once; the device's own kernels go through the second mapping (host_view).
// Fresh memory is full of ones: NaN as a number.
//
// Ownership: one object per process, never destroyed, as an allocator.
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
