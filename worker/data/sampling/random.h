// Random numbers that are a pure function of seed, purpose and position.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy
// as 1, 2, 3", SC11) turns a counter and a key into 128 random bits without any
// state. So a draw depends only on (seed, epoch, sample, number of the draw),
// and ranks and threads cannot change it.
//
// Layout of the counter: word 0 draw, word 1 epoch, words 2 and 3 index (56
// bits), top byte of word 3 purpose. The key is the seed.
#pragma once

#include <array>
#include <cstdint>

namespace headroom::sampling {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);
PhiloxKey philox_key(uint64_t seed);

// Streams of different purposes never share a counter.
enum class RandomPurpose : uint32_t {
  kAugmentation = 1,
  kPermutation = 2,
  kSyntheticImage = 3,
  kAnchors = 4,
  kCopyPaste = 5,
  kRandomCrop = 6,
  kInputSize = 7,
  kWeightedSample = 8
};

// The random draws of one sample, in sequence.
class RandomStream {
 public:
  // REQUIRES: epoch < 2^32, index < 2^56.
  RandomStream(uint64_t seed, uint64_t epoch, uint64_t index,
               RandomPurpose purpose);

  uint64_t bits();   // 64 random bits
  double uniform();  // [0, 1), 53 bits
  double uniform(double low, double high);
  int64_t below(int64_t n);  // 0..n-1, without bias. REQUIRES: n > 0.

 private:
  PhiloxCounter counter_;
  PhiloxKey key_;
  std::array<uint64_t, 2> block_{};
  int used_ = 2;
};

}  // namespace headroom::sampling
