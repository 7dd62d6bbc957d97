#include "worker/data/sampling/random.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::sampling {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

PhiloxKey philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

RandomStream::RandomStream(uint64_t seed, uint64_t epoch, uint64_t index,
                           RandomPurpose purpose)
    : counter_{0, static_cast<uint32_t>(epoch), static_cast<uint32_t>(index),
               static_cast<uint32_t>(index >> 32) |
                   static_cast<uint32_t>(purpose) << 24},
      key_(philox_key(seed)) {
  HEADROOM_CHECK(epoch >> 32 == 0, cat("epoch ", epoch));
  HEADROOM_CHECK(index >> 56 == 0, cat("index ", index));
}

uint64_t RandomStream::bits() {
  if (used_ == 2) {
    const PhiloxCounter words = philox4x32(counter_, key_);
    block_ = {words[0] | uint64_t{words[1]} << 32,
              words[2] | uint64_t{words[3]} << 32};
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

double RandomStream::uniform() {
  return static_cast<double>(bits() >> 11) * 0x1.0p-53;
}

double RandomStream::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

// Lemire, "Fast random integer generation in an interval", 2019: takes the high
// half of bits x n, and rejects low halves that would make some results more
// likely.
int64_t RandomStream::below(int64_t n) {
  HEADROOM_CHECK(n > 0, cat("below(", n, ")"));
  const auto bound = static_cast<uint64_t>(n);
  const uint64_t reject_below = -bound % bound;
  while (true) {
    const auto product = static_cast<unsigned __int128>(bits()) * bound;
    if (static_cast<uint64_t>(product) >= reject_below) {
      return static_cast<int64_t>(product >> 64);
    }
  }
}

}  // namespace headroom::sampling
