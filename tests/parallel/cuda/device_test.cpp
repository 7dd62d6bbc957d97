// Tests that need a GPU; they are skipped by name if there is none.
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "tests/parallel/cuda/plugin.h"

namespace headroom::cuda {
namespace {

at::Tensor bytes_on_device(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(at::kCUDA, 0));
}

TEST(CudaDevice, IsDescribed) {
  HEADROOM_NEEDS_DEVICE();
  const devices::DeviceInfo info = plugin().api->describe(0);
  EXPECT_EQ(info.uuid.size(), 40u) << info.uuid;
  EXPECT_TRUE(info.uuid.starts_with("GPU-")) << info.uuid;
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability, 75);
  EXPECT_GT(info.total_bytes, int64_t{1} << 30);
  EXPECT_LT(plugin().api->free_bytes(0), info.total_bytes);
}

TEST(CudaDevice, CountsTensorsByCategory) {
  HEADROOM_NEEDS_DEVICE();
  devices::DeviceMemory& memory = plugin().api->memory(0);
  const int64_t before = memory.live_bytes();
  {
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const at::Tensor tensor = bytes_on_device(3 << 20);
    EXPECT_EQ(memory.live_bytes() - before, 3 << 20);
    EXPECT_EQ(
        memory.live_by_category()[static_cast<size_t>(MemoryCategory::kLoss)],
        3 << 20);
    EXPECT_GE(memory.reserved_bytes(), 3 << 20);
  }
  EXPECT_EQ(memory.live_bytes(), before);
  EXPECT_GE(memory.peak_bytes() - before, 3 << 20);
  memory.reset_peak();
  EXPECT_EQ(memory.peak_bytes(), before);
}

TEST(CudaDevice, LimitBoundsTheReservedBytes) {
  HEADROOM_NEEDS_DEVICE();
  devices::DeviceMemory& memory = plugin().api->memory(0);
  memory.release_caches();
  memory.set_limit(int64_t{256} << 20);
  EXPECT_THROW(bytes_on_device(int64_t{300} << 20), c10::OutOfMemoryError);
  EXPECT_NO_THROW(bytes_on_device(int64_t{200} << 20));
  EXPECT_LE(memory.peak_reserved_bytes(), int64_t{256} << 20);
  memory.release_caches();
  memory.set_limit(activations::MemoryMeter::kNoLimit);
}

TEST(CudaDevice, RefusesTheChosenSegment) {
  HEADROOM_NEEDS_DEVICE();
  devices::DeviceMemory& memory = plugin().api->memory(0);
  memory.take_last_refusal();
  memory.fail_allocation(1);
  EXPECT_EQ(memory.pending_failure(), 1);
  EXPECT_THROW(bytes_on_device(int64_t{64} << 20), c10::OutOfMemoryError);
  EXPECT_EQ(memory.pending_failure(), 0);
  EXPECT_TRUE(memory.take_last_refusal());
  memory.fail_allocation(0);
  EXPECT_NO_THROW(bytes_on_device(int64_t{64} << 20));
}

// The driver must list this process, with at least the bytes of its context and
// its segments.
TEST(CudaDevice, ReportsTheMemoryOfThisProcess) {
  HEADROOM_NEEDS_DEVICE();
  const at::Tensor tensor = bytes_on_device(int64_t{64} << 20);
  const auto use = plugin().api->use_of(0);
  if (!use) GTEST_SKIP() << "NVML does not know this device";
  EXPECT_GE(use->used_bytes, int64_t{64} << 20);
  if (!use->own_bytes) GTEST_SKIP() << "NVML does not know this process";
  EXPECT_GT(*use->own_bytes, plugin().api->memory(0).reserved_bytes());
  EXPECT_LE(*use->own_bytes, use->used_bytes);
}

TEST(CudaDevice, HistoryListsAllocations) {
  HEADROOM_NEEDS_DEVICE();
  using Event = devices::DeviceMemory::HistoryEvent;
  devices::DeviceMemory& memory = plugin().api->memory(0);
  memory.record_history(1000);
  bytes_on_device(5 << 20);
  int allocated = 0;
  int freed = 0;
  for (const Event& event : memory.history()) {
    allocated +=
        event.action == Event::Action::kAllocate && event.bytes == 5 << 20;
    freed += event.action == Event::Action::kFree && event.bytes == 5 << 20;
  }
  EXPECT_EQ(allocated, 1);
  EXPECT_EQ(freed, 1);
  memory.record_history(0);
}

}  // namespace
}  // namespace headroom::cuda
