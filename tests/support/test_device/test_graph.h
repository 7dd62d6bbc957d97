// TestGraph: a CUDA graph on the test device. Work queued during a capture is
// recorded with the addresses that it reads and writes, and has no effect; a
// replay queues it on the thread's stream, with these addresses. Work that CUDA
// cannot capture is refused, and ends the capture.
//
// A failed capture behaves as with CUDA: end_capture() throws, and the
// allocator treats the capture as active until abandon_capture(); meanwhile it
// cannot release its caches.
//
// Threads: one captures; any may free memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/devices/device_api.h"

namespace headroom {

// Pages that one graph, or several that share them, have taken and keep.
class GraphPages {
 public:
  ~GraphPages();

  void* take(size_t bytes);
  // Returns false if the pages are not the graph's.
  bool give_back(void* address);

 private:
  struct Block {
    size_t bytes = 0;
    bool is_free = false;
  };
  std::mutex mutex_;
  std::map<void*, Block> blocks_;  // guarded by mutex_
};

class TestGraph final : public devices::DeviceGraph {
 public:
  explicit TestGraph(int device);
  ~TestGraph() override;

  void begin_capture(devices::DeviceGraph* before) override;
  void end_capture() override;
  void abandon_capture() noexcept override;
  void replay() override;

  // The graph that the calling thread captures; null if it captures none.
  static TestGraph* capturing();
  GraphPages& pages() { return *pages_; }

  // Records the work. Throws if fail_capture() chose this piece to fail.
  void remember(std::function<void()> work);

  // From now on the `n`-th piece of work captured by any thread (1: the next)
  // fails, and makes its capture invalid; 0 disarms.
  static void fail_capture(int64_t n);
  // Pieces until the injected failure; 0 after it, or if none is armed.
  static int64_t pending_failure();

  // Makes the capture invalid: end_capture() throws.
  void spoil() { is_spoiled_ = true; }

  // The number of replays of all graphs since the process started.
  static int64_t replays();
  // Captures that the device's allocator treats as active.
  static int64_t captures_underway(int device);

  // Returns the block to the living graph that owns it; false if none does.
  static bool give_back(void* address);

 private:
  const c10::Device device_;
  std::shared_ptr<GraphPages> pages_;
  using Work = std::vector<std::function<void()>>;
  // Shared, because a replay in progress may outlive the graph.
  std::shared_ptr<Work> work_ = std::make_shared<Work>();
  bool is_underway_ = false;  // the allocator treats it as active
  bool is_spoiled_ = false;
};

// For work that only uses memory (kernel_view): queues it on the thread's
// stream of the device, or records it if the thread captures a graph.
void do_or_remember(c10::Device device, std::function<void()> work);

// Called before the host waits, which cannot be captured: if the thread
// captures a graph, throws c10::Error and the capture is invalid.
void refuse_while_captured();

}  // namespace headroom
