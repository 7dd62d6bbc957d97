#include "parallel/plan/memory_tape.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom {

MemoryTape::Buffer MemoryTape::allocate(int64_t bytes) {
  HEADROOM_CHECK(bytes >= 0, std::to_string(bytes) + " bytes");
  entries_.push_back({bytes, 1});
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  return static_cast<Buffer>(entries_.size()) - 1;
}

const MemoryTape::Entry& MemoryTape::at(Buffer buffer) const {
  const Entry& entry = entries_.at(static_cast<size_t>(buffer));
  HEADROOM_CHECK(entry.references > 0,
                 "buffer " + std::to_string(buffer) + " is gone");
  return entry;
}

void MemoryTape::retain(Buffer buffer) {
  at(buffer);
  ++entries_[static_cast<size_t>(buffer)].references;
}

void MemoryTape::release(Buffer buffer) {
  if (buffer == kNone) return;
  at(buffer);
  Entry& entry = entries_[static_cast<size_t>(buffer)];
  if (--entry.references == 0) live_ -= entry.bytes;
}

void MemoryTape::touch(int64_t bytes) { release(allocate(bytes)); }

}  // namespace headroom
