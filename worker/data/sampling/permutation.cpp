#include "worker/data/sampling/permutation.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom::sampling {
namespace {

// Four rounds suffice against distinguishers for large domains; small ones
// want more, and the cost is nothing beside decoding an image.
constexpr uint32_t kFeistelRounds = 12;

}  // namespace

Permutation::Permutation(uint64_t seed, int64_t epoch, int64_t n)
    : key_(philox_key(seed)), epoch_(static_cast<uint32_t>(epoch)), n_(n) {
  HEADROOM_CHECK(n > 0 && n >> 56 == 0, "n " + std::to_string(n));
  HEADROOM_CHECK(epoch >= 0 && epoch >> 32 == 0,
                 "epoch " + std::to_string(epoch));
  while (int64_t{1} << (2 * half_bits_) < n) ++half_bits_;
}

int64_t Permutation::operator()(int64_t position) const {
  HEADROOM_CHECK(
      position >= 0 && position < n_,
      "position " + std::to_string(position) + " of " + std::to_string(n_));
  auto value = static_cast<uint64_t>(position);
  do {
    value = encrypt(value);
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < kFeistelRounds; ++round) {
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(right), epoch_, round,
                    static_cast<uint32_t>(RandomPurpose::kPermutation) << 24},
                   key_);
    const uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace headroom::sampling
