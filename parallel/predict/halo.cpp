#include "parallel/predict/halo.h"

#include <algorithm>

namespace headroom::predict {
namespace {

// Rows of several samples are not one piece of memory: what is sent and what is
// received is copied. With one neighbour both together are the halo's rows.
int64_t message_bytes(const Pass& pass, const Map& map, int64_t around) {
  if (pass.extents.samples == 1) return 0;
  return pass.extents.neighbours *
         pass.extents.rows_bytes(around, map.channels, map.stride);
}

}  // namespace

int64_t rows_around(const Extents& extents, int64_t kernel, int64_t stride) {
  return extents.is_split() ? std::max<int64_t>(kernel - stride, 0) : 0;
}

Memory fetch_halo(const Pass& pass, const Map& map, int64_t around) {
  const auto fetch = [&] {
    Memory halo = pass.tape.allocate(
        pass.extents.rows_bytes(around, map.channels, map.stride));
    pass.tape.touch(message_bytes(pass, map, around));
    return halo;
  };
  return pass.replay != nullptr ? pass.replay->once(fetch) : fetch();
}

Memory join_halo(const Pass& pass, const Map& map, int64_t around) {
  return pass.tape.allocate(
      pass.bytes_of(map) +
      pass.extents.rows_bytes(around, map.channels, map.stride));
}

Memory give_back_halo(const Pass& pass, const Map& map, int64_t around) {
  const int64_t halo =
      pass.extents.rows_bytes(around, map.channels, map.stride);
  const Memory sent = pass.tape.allocate(halo);
  Memory own_rows = pass.tape.allocate(pass.bytes_of(map));
  // What comes back is received apart, also of one sample.
  const int64_t received = pass.extents.neighbours * halo;
  const int64_t copied = pass.extents.samples == 1 ? 0 : received;
  pass.tape.touch(received + copied);
  return own_rows;
}

}  // namespace headroom::predict
