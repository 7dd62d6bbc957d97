#include "tests/support/test_device/test_graph.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <set>
#include <utility>

#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/test_device_memory.h"

namespace headroom {
namespace {

thread_local TestGraph* captured = nullptr;
std::atomic<int64_t> num_replays{0};
std::atomic<int64_t> num_underway[TestDeviceMemory::kDevices];
std::atomic<int64_t> countdown{0};

struct AllPages {
  std::mutex mutex;
  std::set<GraphPages*> pages;  // guarded
};

AllPages& all_pages() {
  static auto* const all = new AllPages;
  return *all;
}

}  // namespace

// What is still held by tensors becomes the device's own again.
GraphPages::~GraphPages() {
  {
    const std::lock_guard lock(all_pages().mutex);
    all_pages().pages.erase(this);
  }
  for (const auto& [address, block] : blocks_) {
    if (block.is_free) DevicePages::instance().give_back(address);
  }
}

void* GraphPages::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto best = blocks_.end();
  for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
    const Block& block = at->second;
    if (!block.is_free || block.bytes < bytes) continue;
    if (best == blocks_.end() || block.bytes < best->second.bytes) best = at;
  }
  if (best != blocks_.end()) {
    best->second.is_free = false;
    return best->first;
  }
  void* const address = DevicePages::instance().take(bytes);
  blocks_[address] = {bytes, false};
  return address;
}

bool GraphPages::give_back(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  found->second.is_free = true;
  return true;
}

TestGraph::TestGraph(int device)
    : device_(device), pages_(std::make_shared<GraphPages>()) {
  const std::lock_guard lock(all_pages().mutex);
  all_pages().pages.insert(pages_.get());
}

TestGraph::~TestGraph() = default;

TestGraph* TestGraph::capturing() { return captured; }

void TestGraph::begin_capture(devices::DeviceGraph* before) {
  TORCH_CHECK(captured == nullptr, "one graph at a time");
  if (before != nullptr) pages_ = static_cast<TestGraph*>(before)->pages_;
  captured = this;
  is_underway_ = true;
  ++num_underway[device_];
}

void TestGraph::end_capture() {
  TORCH_CHECK(captured == this, "another graph is captured");
  captured = nullptr;
  TORCH_CHECK(!is_spoiled_, "the capture failed before it ended");
  is_underway_ = false;
  --num_underway[device_];
}

void TestGraph::abandon_capture() noexcept {
  if (captured == this) captured = nullptr;
  if (std::exchange(is_underway_, false)) --num_underway[device_];
  work_.clear();
}

void TestGraph::remember(std::function<void()> work) {
  if (countdown > 0 && --countdown == 0) {
    is_spoiled_ = true;
    TORCH_CHECK(false, "operation not permitted when stream is capturing");
  }
  work_.push_back(std::move(work));
}

void TestGraph::fail_capture(int64_t n) { countdown = n; }
int64_t TestGraph::pending_failure() { return countdown; }
int64_t TestGraph::captures_underway(int device) {
  return num_underway[device];
}

void TestGraph::replay() {
  TORCH_CHECK(captured == nullptr, "replayed while a graph is captured");
  for (const std::function<void()>& work : work_) work();
  ++num_replays;
}

int64_t TestGraph::replays() { return num_replays; }

bool TestGraph::give_back(void* address) {
  const std::lock_guard lock(all_pages().mutex);
  for (GraphPages* const pages : all_pages().pages) {
    if (pages->give_back(address)) return true;
  }
  return false;
}

void do_or_remember(std::function<void()> work) {
  if (TestGraph* const graph = TestGraph::capturing()) {
    graph->remember(std::move(work));
  } else {
    work();
  }
}

}  // namespace headroom
