// MemoryTimeline: which buffers of a training step are alive at once, counted
// without a tensor.
//
// A buffer lives as long as somebody holds it, as a tensor's memory does; the
// timeline knows the sum, its peak, and what each layer of the model has
// allocated of it. The files beside this one hold buffers as the worker's code
// holds tensors, so that the peak is found where it really is.
//
// Given a caching allocator, the timeline asks it for each buffer too, so that
// what a device's segments come to is known (replay_step in step.h).
//
// The timeline must outlive its buffers, and borrows the allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/predict/caching_allocator.h"

namespace headroom::predict {

class Derivation;
class MemoryTimeline;

struct Buffer {
  Buffer(MemoryTimeline& on, int64_t size, int64_t of);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  MemoryTimeline& timeline;
  const int64_t bytes;
  const int64_t layer;
  const std::optional<CachingAllocator::Block> block;
  // How it can be made again (derivation.h); null where it cannot.
  std::shared_ptr<Derivation> derivation;
};

// Null where there is no memory.
using Memory = std::shared_ptr<Buffer>;

class MemoryTimeline {
 public:
  explicit MemoryTimeline(CachingAllocator* device = nullptr)
      : device_(device) {}

  // Buffers are allocated for this layer from now on.
  void set_layer(int64_t layer) { layer_ = layer; }

  Memory allocate(int64_t bytes) {
    return std::make_shared<Buffer>(*this, bytes, layer_);
  }
  // Allocates `bytes` and releases them at once.
  void touch(int64_t bytes) {
    peak_ = std::max(peak_, live_ + bytes);
    give_back(take(bytes));
  }

  int64_t live_bytes() const { return live_; }
  int64_t live_bytes_of(int64_t layer) const {
    const auto at = static_cast<size_t>(layer + 1);
    return at < layers_.size() ? layers_[at] : 0;
  }
  int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = live_; }
  // Did the device have room for all so far?
  bool fits() const { return fits_; }

 private:
  friend struct Buffer;
  void add(int64_t bytes, int64_t layer) {
    live_ += bytes;
    const auto at = static_cast<size_t>(layer + 1);
    if (at >= layers_.size()) layers_.resize(at + 1, 0);
    layers_[at] += bytes;
    peak_ = std::max(peak_, live_);
  }

  // Nothing for a tensor without elements, or beyond the device's limit.
  std::optional<CachingAllocator::Block> take(int64_t bytes) {
    if (device_ == nullptr || bytes == 0) return std::nullopt;
    const auto block = device_->allocate(bytes);
    if (!block) fits_ = false;
    return block;
  }
  void give_back(const std::optional<CachingAllocator::Block>& block) {
    if (block) device_->free(*block);
  }

  CachingAllocator* const device_;
  bool fits_ = true;
  int64_t layer_ = -1;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  std::vector<int64_t> layers_;  // each layer's; layer -1, nobody's, is first
};

inline Buffer::Buffer(MemoryTimeline& on, int64_t size, int64_t of)
    : timeline(on), bytes(size), layer(of), block(on.take(size)) {
  timeline.add(bytes, layer);
}
inline Buffer::~Buffer() {
  timeline.add(-bytes, layer);
  timeline.give_back(block);
}

}  // namespace headroom::predict
