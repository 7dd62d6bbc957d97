#include "parallel/cuda/memory_account.h"

#include <algorithm>

namespace headroom::cuda {

void MemoryAccount::Count::add(int64_t bytes) {
  const int64_t now = live += bytes;
  int64_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
}

void MemoryAccount::change(MemoryCategory category, int64_t bytes) {
  all_.add(bytes);
  categories_[static_cast<size_t>(category)].add(bytes);
  if (activations::MemoryTimeline* const timeline = timeline_) {
    timeline->note(category, bytes);
  }
}

void MemoryAccount::take(uint64_t address, int64_t bytes,
                         MemoryCategory category) {
  ++allocations_;
  blocks_[address] = {bytes, category};
  change(category, bytes);
}

void MemoryAccount::give_back(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  const Block block = found->second;
  blocks_.erase(found);
  change(block.category, -block.bytes);
}

void MemoryAccount::hold(const void* owner, int64_t bytes) {
  const std::lock_guard lock(held_mutex_);
  held_[owner] += bytes;
  change(MemoryCategory::kActivations, bytes);
}

void MemoryAccount::let_go(const void* owner) {
  const std::lock_guard lock(held_mutex_);
  const auto found = held_.find(owner);
  if (found == held_.end()) return;
  change(MemoryCategory::kActivations, -found->second);
  held_.erase(found);
}

void MemoryAccount::reset_peak() {
  all_.peak = all_.live.load();
  for (Count& count : categories_) count.peak = count.live.load();
}

activations::CategoryBytes MemoryAccount::live_by_category() const {
  activations::CategoryBytes bytes;
  std::ranges::transform(
      categories_, bytes.begin(),
      [](const Count& count) -> int64_t { return count.live; });
  return bytes;
}

activations::CategoryBytes MemoryAccount::peak_by_category() const {
  activations::CategoryBytes bytes;
  std::ranges::transform(
      categories_, bytes.begin(),
      [](const Count& count) -> int64_t { return count.peak; });
  return bytes;
}

}  // namespace headroom::cuda
