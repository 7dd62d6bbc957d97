#include "tests/support/test_device/test_device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <utility>

#include "parallel/base/peer_wait.h"
#include "parallel/base/units.h"
#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

devices::HostServices& services() {
  static devices::HostServices given = {&MemoryCategoryScope::of_device,
                                        &PeerWait::begin, &PeerWait::end,
                                        &PeerNews::a_peer_works};
  return given;
}

int current_device() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
      ->getDevice()
      .index();
}

// The context of an allocated block, which records its stream and so its
// device.
struct Block {
  void* address;
  c10::Stream stream;
};

void release(void* context) {
  const auto* const block = static_cast<Block*>(context);
  TestDeviceMemory::of(block->stream.device_index())
      .give_back(block->address, block->stream);
  delete block;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    const c10::Device place(c10::DeviceType::PrivateUse1,
                            static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, place};
    void* const address =
        TestDeviceMemory::of(device).take(static_cast<int64_t>(bytes));
    return {address, new Block{address, TestStreams::instance().current(place)},
            &release, place};
  }
  void copy_data(void* target, const void* source,
                 size_t bytes) const override {
    const DevicePages& pages = DevicePages::instance();
    std::memmove(pages.host_view(target), pages.host_view(source), bytes);
  }
};

}  // namespace

TestDeviceMemory& TestDeviceMemory::of(int device) {
  static auto* const all = new std::array<TestDeviceMemory, kDevices>;
  return all->at(static_cast<size_t>(device));
}

void TestDeviceMemory::set_services(const devices::HostServices& given) {
  services() = given;
}

const devices::HostServices& TestDeviceMemory::host_services() {
  return services();
}

void TestDeviceMemory::install() {
  static auto* const allocator = new Allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, allocator, 255);
}

std::optional<activations::MemoryMeter::Refusal>
TestDeviceMemory::take_last_refusal() {
  const std::lock_guard lock(mutex_);
  return std::exchange(refusal_, std::nullopt);
}

// Refused during a capture, as LibTorch's allocator asserts.
void TestDeviceMemory::release_caches() {
  for (int device = 0; device < kDevices; ++device) {
    TORCH_CHECK(
        this != &of(device) || TestGraph::captures_underway(device) == 0,
        "caches are released while a graph is captured");
  }
}

void TestDeviceMemory::refuse(int64_t bytes, const std::string& why) {
  refusal_ = Refusal{bytes, account_.live_bytes(), limit_};
  C10_THROW_ERROR(OutOfMemoryError,
                  why + ": asked for " + format_bytes(bytes) + " beside " +
                      format_bytes(account_.live_bytes()) + " in use");
}

void* TestDeviceMemory::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (countdown_ > 0 && --countdown_ == 0) refuse(bytes, "injected");
  if (bytes > std::min(kBytes, limit_.load()) - account_.live_bytes()) {
    refuse(bytes, "the test device's memory");
  }
  TestGraph* const graph = TestGraph::capturing();
  const auto size = static_cast<size_t>(bytes);
  void* const address = graph != nullptr ? graph->pages().take(size)
                                         : DevicePages::instance().take(size);
  account_.take(reinterpret_cast<uint64_t>(address), bytes,
                services().category_of(bytes));
  return address;
}

void TestDeviceMemory::give_back(void* address, const c10::Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    account_.give_back(reinterpret_cast<uint64_t>(address));
  }
  if (TestGraph::give_back(address)) return;
  TestStreams::instance().give_quietly(
      stream, [address] { DevicePages::instance().give_back(address); });
}

bool TestDeviceMemory::take_outside(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > kBytes - own_bytes()) return false;
  outside_ += bytes;
  return true;
}

}  // namespace headroom
