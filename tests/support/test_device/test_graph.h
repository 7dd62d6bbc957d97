// TestGraph: what a CUDA graph does, on the test device. What is given to the
// device while it is captured is remembered with the addresses that it reads
// and writes, and has no effect; replaying gives it to the thread's stream, on
// these addresses. What CUDA cannot capture is refused, and ends the capture.
//
// A capture that fails leaves behind what it does with CUDA: end_capture()
// throws, and the allocator believes itself in a capture until
// abandon_capture(); meanwhile it cannot release its caches.
//
// Threads: one captures; memory is given back by any.
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

// Pages that one graph, or several that share them, took and keep.
class GraphPages {
 public:
  ~GraphPages();

  void* take(size_t bytes);
  // False: they are none of these.
  bool give_back(void* address);

 private:
  struct Block {
    size_t bytes = 0;
    bool is_free = false;
  };
  std::mutex mutex_;
  std::map<void*, Block> blocks_;  // guarded
};

class TestGraph final : public devices::DeviceGraph {
 public:
  explicit TestGraph(int device);
  ~TestGraph() override;

  void begin_capture(devices::DeviceGraph* before) override;
  void end_capture() override;
  void abandon_capture() noexcept override;
  void replay() override;

  // The graph that the calling thread captures; null where it captures none.
  static TestGraph* capturing();
  GraphPages& pages() { return *pages_; }

  // Throws where it is the one that fails.
  void remember(std::function<void()> work);

  // From now on the `n`-th piece of work that any thread has captured (1: the
  // next) cannot be, and spoils its capture; 0 disarms.
  static void fail_capture(int64_t n);
  // Pieces up to that one; 0 after it, or where none is armed.
  static int64_t pending_failure();

  // From now on nothing that is captured counts: end_capture() throws.
  void spoil() { is_spoiled_ = true; }

  // The replays of all graphs since the start.
  static int64_t replays();
  // Captures that the device's allocator believes to be under way.
  static int64_t captures_underway(int device);

  // To whichever living graph it belongs to. False where it belongs to none.
  static bool give_back(void* address);

 private:
  const c10::Device device_;
  std::shared_ptr<GraphPages> pages_;
  using Work = std::vector<std::function<void()>>;
  // A replay under way outlives the graph.
  std::shared_ptr<Work> work_ = std::make_shared<Work>();
  bool is_underway_ = false;  // for the allocator
  bool is_spoiled_ = false;
};

// Work on memory alone (kernel_view): given to the thread's stream of the
// device, or remembered by the graph that the thread captures.
void do_or_remember(c10::Device device, std::function<void()> work);

// What the host waits for cannot be captured: throws c10::Error while the
// thread captures, and the capture is lost.
void refuse_while_captured();

}  // namespace headroom
