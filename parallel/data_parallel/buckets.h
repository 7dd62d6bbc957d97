// Buckets: the ranges of the gradient flat buffer that are reduced one by one.
//
// Backward finishes the deepest layers first, so buckets are carved from the
// flat buffer's end. The last one holds little more than the stem: nothing is
// left to compute while it travels. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/data_parallel/flat_buffer.h"

namespace headroom::data_parallel {

struct Bucket {
  // Slots [first_slot, last_slot).
  int64_t first_slot = 0;
  int64_t last_slot = 0;
  // Elements [offset, offset + size) of the flat buffer, padding included.
  int64_t offset = 0;
  int64_t size = 0;
  bool operator==(const Bucket&) const = default;
};

// In the order of their reduction; together they tile [0, flat_buffer_size).
// Each but the last takes slots until it holds at least `bucket_bytes`.
// REQUIRES: element_size > 0, bucket_bytes > 0.
std::vector<Bucket> carve_buckets(const std::vector<FlatBuffer::Slot>& slots,
                                  int64_t flat_buffer_size,
                                  int64_t element_size, int64_t bucket_bytes);

}  // namespace headroom::data_parallel
