// Permutation: the order of an epoch's samples, without a list of them.
//
// Position -> sample by a keyed bijection: a Feistel network over the smallest
// even number of bits that holds n, walked along its cycle until it lands
// below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
// Any rank can ask for any position of any epoch, in any order, in O(1) memory.
//
// Threads: immutable.
#pragma once

#include <cstdint>

#include "worker/data/sampling/random.h"

namespace headroom::sampling {

class Permutation {
 public:
  // REQUIRES: 0 < n < 2^56, epoch < 2^32.
  Permutation(uint64_t seed, int64_t epoch, int64_t n);

  // REQUIRES: 0 <= position < n. A bijection of 0..n-1.
  int64_t operator()(int64_t position) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  PhiloxKey key_;
  uint32_t epoch_ = 0;
  int64_t n_ = 0;
  int half_bits_ = 1;
};

}  // namespace headroom::sampling
