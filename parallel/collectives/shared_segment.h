// SharedSegment: memory of this process that other processes of the same host
// and user can map.
//
// It is an anonymous file (memfd): it has no name that others can guess, a
// killed process leaves no file, and /dev/shm does not limit its size. Peers
// open it through /proc and compare a random token, to detect a new process
// that has the process ID of a dead one.
//
// A mapping keeps the memory alive, even after its owner has ended. Errors:
// Error (tag "shared_memory") if it cannot be made or opened.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom::collectives {

// The address with which a peer opens a segment. Plain numbers, so that a
// collective can exchange it.
struct SegmentAddress {
  int64_t process = 0;
  int64_t descriptor = 0;
  std::array<int64_t, 2> token = {};
};

class SharedSegment {
 public:
  // A zero-filled segment. Its pages are allocated at once, so touching them
  // cannot fail.
  static SharedSegment create(size_t bytes);
  // A segment of `bytes` that this or another process created.
  static SharedSegment open(const SegmentAddress& address, size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  const SegmentAddress& address() const { return address_; }
  // Its memory, aligned to a page.
  std::byte* data() const { return data_; }

 private:
  SharedSegment(const SegmentAddress& address, int descriptor, size_t bytes);

  SegmentAddress address_;
  int descriptor_ = -1;  // -1 except in the owner
  std::byte* data_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace headroom::collectives
