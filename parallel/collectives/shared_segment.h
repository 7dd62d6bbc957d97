// SharedSegment: memory of this process that other processes of the same host
// and user can map.
//
// An anonymous file (memfd): it has no name that could be guessed or be left
// behind by a killed process, and is not bounded by the size of /dev/shm. Peers
// open it through /proc and compare a random token, so that a process that took
// over a dead one's number is not mistaken for it.
//
// A mapping keeps the memory alive, also after its owner is gone. Errors: Error
// (tag "shared_memory") when it cannot be made or opened.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom::collectives {

// What a peer needs in order to open a segment; plain numbers, so that it can
// travel through a collective.
struct SegmentAddress {
  int64_t process = 0;
  int64_t descriptor = 0;
  std::array<int64_t, 2> token = {};
};

class SharedSegment {
 public:
  // A zero-filled segment, whose pages are allocated, so that touching them
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
  int descriptor_ = -1;  // the owner's: peers open it through /proc
  std::byte* data_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace headroom::collectives
