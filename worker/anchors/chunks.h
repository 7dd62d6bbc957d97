// Work over many boxes in chunks of a fixed size: sums that are kept per chunk
// and added in their order have the same bits with any number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parallel/base/parallel_for.h"

namespace headroom::anchors {

inline constexpr size_t kChunkSize = 4096;

inline int64_t num_chunks(size_t count) {
  return static_cast<int64_t>((count + kChunkSize - 1) / kChunkSize);
}

// body(chunk, begin, end), from up to `num_threads` threads.
template <typename Body>
void for_each_chunk(size_t count, int64_t num_threads, const Body& body) {
  parallel_for(num_chunks(count), num_threads, [&](int64_t chunk) {
    const size_t begin = static_cast<size_t>(chunk) * kChunkSize;
    body(chunk, begin, std::min(begin + kChunkSize, count));
  });
}

}  // namespace headroom::anchors
