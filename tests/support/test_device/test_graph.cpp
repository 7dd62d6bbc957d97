#include "tests/support/test_device/test_graph.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <set>
#include <utility>

#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_memory.h"

namespace headroom {
namespace {

thread_local TestGraph* captured = nullptr;
std::atomic<int64_t> num_replays{0};
std::atomic<int64_t> num_underway[TestDeviceMemory::kDevices];
std::atomic<int64_t> countdown{0};

struct AllPages {
  std::mutex mutex;
  std::set<GraphPages*> pages;  // guarded by mutex
};

AllPages& all_pages() {
  static auto* const all = new AllPages;
  return *all;
}

}  // namespace

// Returns the memory to the device, even if tensors still use it.
GraphPages::~GraphPages() {
  for (c10::DeviceIndex device = 0; device < TestDeviceMemory::kDevices;
       ++device) {
    try {
      TestStreams::instance().finish_device(device);
    } catch (const std::exception&) {
      // The error is reported to the threads that wait for the device.
    }
  }
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
    : device_(c10::DeviceType::PrivateUse1,
              static_cast<c10::DeviceIndex>(device)),
      pages_(std::make_shared<GraphPages>()) {
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
  ++num_underway[device_.index()];
}

void TestGraph::end_capture() {
  TORCH_CHECK(captured == this, "another graph is captured");
  captured = nullptr;
  TORCH_CHECK(!is_spoiled_, "the capture failed before it ended");
  is_underway_ = false;
  --num_underway[device_.index()];
}

void TestGraph::abandon_capture() noexcept {
  if (captured == this) captured = nullptr;
  if (std::exchange(is_underway_, false)) --num_underway[device_.index()];
  work_ = std::make_shared<Work>();
}

void TestGraph::remember(std::function<void()> work) {
  if (countdown > 0 && --countdown == 0) {
    spoil();
    TORCH_CHECK(false, "operation not permitted when stream is capturing");
  }
  work_->push_back(std::move(work));
}

void TestGraph::fail_capture(int64_t n) { countdown = n; }
int64_t TestGraph::pending_failure() { return countdown; }
int64_t TestGraph::captures_underway(int device) {
  return num_underway[device];
}

void TestGraph::replay() {
  TORCH_CHECK(captured == nullptr, "replayed while a graph is captured");
  TORCH_CHECK(!is_spoiled_, "a lost capture is replayed");
  count_launch("graph");
  TestStreams& streams = TestStreams::instance();
  streams.give(streams.current(device_), [all = work_] {
    for (const std::function<void()>& work : *all) work();
  });
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

void do_or_remember(c10::Device device, std::function<void()> work) {
  if (device.is_cpu()) return work();
  if (TestGraph* const graph = TestGraph::capturing()) {
    return graph->remember(std::move(work));
  }
  TestStreams& streams = TestStreams::instance();
  streams.give(streams.current(device), std::move(work));
}

void refuse_while_captured() {
  TestGraph* const graph = TestGraph::capturing();
  if (graph == nullptr) return;
  graph->spoil();
  TORCH_CHECK(false, "what the host waits for cannot be captured");
}

}  // namespace headroom
