#include "parallel/activations/counting_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <utility>

#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::activations {
namespace {

// LibTorch aligns its blocks to 64 bytes; the header keeps that alignment.
constexpr size_t kHeaderBytes = 64;

[[noreturn]] void throw_out_of_memory(const std::string& message) {
  C10_THROW_ERROR(OutOfMemoryError, message);
}

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t before = peak;
  while (value > before && !peak.compare_exchange_weak(before, value)) {
  }
}

}  // namespace

CountingAllocator& CountingAllocator::instance() {
  static auto* const allocator = new CountingAllocator;
  return *allocator;
}

void CountingAllocator::install() {
  // 255 is above every priority that LibTorch itself uses.
  c10::SetAllocator(c10::kCPU, &instance(), 255);
  OutsideMemory::set_counter(&count_outside);
}

CountingAllocator::Account*& CountingAllocator::own_account() {
  thread_local Account* own = nullptr;
  return own;
}

CountingAllocator::Account& CountingAllocator::account() {
  static auto* const of_process = new Account;
  Account* const own = own_account();
  return own != nullptr ? *own : *of_process;
}

// The account is never freed, because blocks may outlive the thread.
void CountingAllocator::count_separately() { own_account() = new Account; }

void CountingAllocator::count_as_host_memory() {
  static auto* const of_host = new Account;
  own_account() = of_host;
}

int64_t& CountingAllocator::countdown() {
  thread_local int64_t count = 0;
  return count;
}

std::optional<CountingAllocator::Refusal>& CountingAllocator::last_refusal() {
  thread_local std::optional<Refusal> last;
  return last;
}

std::optional<CountingAllocator::Refusal> CountingAllocator::take_refusal() {
  return std::exchange(last_refusal(), std::nullopt);
}

void CountingAllocator::refuse(const Account& account, int64_t bytes,
                               const std::string& message) {
  last_refusal() = Refusal{bytes, account.live, account.limit};
  throw_out_of_memory(message);
}

void CountingAllocator::reset_peak() {
  Account& mine = account();
  mine.peak = mine.live.load();
  for (Account::Category& category : mine.categories) {
    category.peak = category.live.load();
  }
}

CategoryBytes CountingAllocator::live_by_category() const {
  CategoryBytes bytes;
  std::ranges::transform(
      account().categories, bytes.begin(),
      [](const auto& category) -> int64_t { return category.live; });
  return bytes;
}

CategoryBytes CountingAllocator::peak_by_category() const {
  CategoryBytes bytes;
  std::ranges::transform(
      account().categories, bytes.begin(),
      [](const auto& category) -> int64_t { return category.peak; });
  return bytes;
}

void CountingAllocator::note(Account& account, MemoryCategory category,
                             int64_t bytes) {
  Account::Category& part = account.categories[static_cast<size_t>(category)];
  raise_to(part.peak, part.live += bytes);
  if (MemoryTimeline* timeline = account.timeline) {
    timeline->note(category, bytes);
  }
}

void CountingAllocator::reserve(Account& account, int64_t bytes) {
  // oneDNN sometimes allocates 0 bytes, and ignores exceptions there.
  if (bytes == 0) return;
  ++account.allocations;
  if (countdown() > 0 && --countdown() == 0) {
    refuse(account, bytes, "injected: asked for " + format_bytes(bytes));
  }
  int64_t live = account.live;
  const int64_t limit = account.limit;
  do {
    if (bytes > limit - live) {
      refuse(account, bytes,
             "memory limit " + format_bytes(limit) + ": asked for " +
                 format_bytes(bytes) + " beside " + format_bytes(live) +
                 " in use");
    }
  } while (!account.live.compare_exchange_weak(live, live + bytes));
  raise_to(account.peak, live + bytes);
}

std::shared_ptr<void> CountingAllocator::count_outside(int64_t bytes) {
  Account& payer = account();
  reserve(payer, bytes);
  const MemoryCategory category = MemoryCategoryScope::of(bytes);
  note(payer, category, bytes);
  return {nullptr, [&payer, category, bytes](std::nullptr_t) {
            payer.live -= bytes;
            note(payer, category, -bytes);
          }};
}

c10::DataPtr CountingAllocator::allocate(size_t bytes) {
  constexpr size_t kMostBytes = static_cast<size_t>(kNoLimit) - kHeaderBytes;
  if (bytes > kMostBytes) {
    throw_out_of_memory(cat("asked for ", bytes, " bytes"));
  }
  Account& payer = account();
  reserve(payer, static_cast<int64_t>(bytes));
  char* block = nullptr;
  try {
    block = static_cast<char*>(c10::alloc_cpu(bytes + kHeaderBytes));
  } catch (const c10::Error&) {
    payer.live -= static_cast<int64_t>(bytes);
    refuse(payer, static_cast<int64_t>(bytes),
           "the system refuses " + format_bytes(static_cast<int64_t>(bytes)));
  }
  static_assert(sizeof(Header) <= kHeaderBytes);
  const MemoryCategory category =
      MemoryCategoryScope::of(static_cast<int64_t>(bytes));
  new (block) Header{&payer, static_cast<int64_t>(bytes), category};
  note(payer, category, static_cast<int64_t>(bytes));
  char* const data = block + kHeaderBytes;
  return {data, data, &release, c10::Device(c10::kCPU)};
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  char* const block = static_cast<char*>(data) - kHeaderBytes;
  const auto* header = reinterpret_cast<const Header*>(block);
  header->account->live -= header->bytes;
  note(*header->account, header->category, -header->bytes);
  c10::free_cpu(block);
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return &release; }

void CountingAllocator::copy_data(void* target, const void* source,
                                  size_t bytes) const {
  default_copy_data(target, source, bytes);
}

}  // namespace headroom::activations
