#include "parallel/predict/operators.h"

#include <algorithm>

namespace headroom::predict {
namespace {

// Bytes of the contiguous copies to send and receive. One sample needs no
// copies: its rows are contiguous. With one neighbour, sent and received rows
// together are as large as the halo.
int64_t message_bytes(const OpContext& context, const Map& map,
                      int64_t around) {
  if (context.shape.samples == 1) return 0;
  return context.shape.neighbours *
         context.shape.rows_bytes(around, map.channels, map.stride);
}

}  // namespace

int64_t rows_around(const MicroBatchShape& shape, int64_t kernel,
                    int64_t stride) {
  return shape.is_split() ? std::max<int64_t>(kernel - stride, 0) : 0;
}

Memory fetch_halo(const OpContext& context, const Map& map, int64_t around) {
  const auto fetch = [&] {
    Memory halo = context.buffers.allocate(
        context.shape.rows_bytes(around, map.channels, map.stride));
    context.buffers.touch(message_bytes(context, map, around));
    return halo;
  };
  return context.replay != nullptr ? context.replay->once(fetch) : fetch();
}

Memory join_halo(const OpContext& context, const Map& map, int64_t around) {
  return context.buffers.allocate(
      context.bytes_of(map) +
      context.shape.rows_bytes(around, map.channels, map.stride));
}

Memory give_back_halo(const OpContext& context, const Map& map,
                      int64_t around) {
  const int64_t halo =
      context.shape.rows_bytes(around, map.channels, map.stride);
  const Memory sent = context.buffers.allocate(halo);
  Memory own_rows = context.buffers.allocate(context.bytes_of(map));
  // The returned gradient rows have a separate buffer, also with one sample.
  const int64_t received = context.shape.neighbours * halo;
  const int64_t copied = context.shape.samples == 1 ? 0 : received;
  context.buffers.touch(received + copied);
  return own_rows;
}

}  // namespace headroom::predict
