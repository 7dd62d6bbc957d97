// TestGraph: what a CUDA graph does, on the test device. What is given to the
// device while it is captured is remembered with the addresses that it reads
// and writes, and has no effect; replaying does it again on these addresses.
// What CUDA cannot capture is refused.
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
  TestGraph();
  ~TestGraph() override;

  void begin_capture(devices::DeviceGraph* before) override;
  void end_capture() override;
  void replay() override;

  // Of the calling thread; null: it captures nothing.
  static TestGraph* capturing();
  GraphPages& pages() { return *pages_; }

  void remember(std::function<void()> work) {
    work_.push_back(std::move(work));
  }

  // Of all graphs, since the start.
  static int64_t replays();

  // Of any graph that lives. False: the address is none of theirs.
  static bool give_back(void* address);

 private:
  std::shared_ptr<GraphPages> pages_;
  std::vector<std::function<void()>> work_;
};

// Done now, or remembered: work on memory alone.
void do_or_remember(std::function<void()> work);

}  // namespace headroom
