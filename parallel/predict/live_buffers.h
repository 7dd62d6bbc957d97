// LiveBuffers: counts which buffers of a training step are alive at once,
// without allocating memory.
//
// A buffer lives as long as a `Memory` refers to it, like a tensor's memory.
// LiveBuffers records the sum of live bytes, its peak, and each layer's share.
// The other files of this folder hold buffers where the worker's code holds
// tensors, so the peak is at the same place as in a real step.
//
// With a CachingAllocator each buffer is also allocated there, to find the
// bytes of the device's segments (replay_step in step.h).
//
// A LiveBuffers must outlive its buffers. It does not own the allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/predict/caching_allocator.h"

namespace headroom::predict {

class Derivation;
class LiveBuffers;

struct Buffer {
  Buffer(LiveBuffers& on, int64_t size, int64_t of);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  LiveBuffers& buffers;
  const int64_t bytes;
  const int64_t layer;
  const std::optional<CachingAllocator::Block> block;
  // How to recompute the buffer (op_context.h); null if it cannot be
  // recomputed.
  std::shared_ptr<Derivation> derivation;
};

// Null for a map without memory.
using Memory = std::shared_ptr<Buffer>;

class LiveBuffers {
 public:
  explicit LiveBuffers(CachingAllocator* device = nullptr) : device_(device) {}

  // From now on buffers are counted for this layer.
  void set_layer(int64_t layer) { layer_ = layer; }

  Memory allocate(int64_t bytes) {
    return std::make_shared<Buffer>(*this, bytes, layer_);
  }
  // Allocates `bytes` and frees them at once.
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
  // Whether the device had room for all buffers so far.
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

  // Returns no value for an empty tensor or if the device is full.
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
  // live bytes by layer; the first entry is for layer -1, no layer
  std::vector<int64_t> layers_;
};

inline Buffer::Buffer(LiveBuffers& on, int64_t size, int64_t of)
    : buffers(on), bytes(size), layer(of), block(on.take(size)) {
  buffers.add(bytes, layer);
}
inline Buffer::~Buffer() {
  buffers.add(-bytes, layer);
  buffers.give_back(block);
}

}  // namespace headroom::predict
