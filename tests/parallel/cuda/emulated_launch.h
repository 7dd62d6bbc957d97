// The launches of batch_norm_passes.cu on the CPU: the kernels' text, thread
// after thread. Barriers are where one loop ends and the next begins.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "parallel/cuda/kernels/batch_norm_body.h"
#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {

// Every block of a launch, every thread of a block.
template <typename Visit>
void for_each_block(const BlockShape& shape, int64_t chunks, int groups,
                    const Visit& visit) {
  for (int group = 0; group < groups; ++group) {
    for (int tile = 0; tile < shape.tiles; ++tile) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        visit(
            ThreadPlace{0, 0, shape.size_x, shape.size_y, chunk, tile, group});
      }
    }
  }
}

template <typename Visit>
void for_each_thread(ThreadPlace place, const Visit& visit) {
  for (place.y = 0; place.y < place.size_y; ++place.y) {
    for (place.x = 0; place.x < place.size_x; ++place.x) visit(place);
  }
}

// As run_pass and add_up of batch_norm_passes.cu; barriers are where one loop
// ends and the next begins.
template <typename T, int V, bool kOfGradients>
void summing_pass(const BlockShape& shape, const BatchNormMap<T>& map,
                  double* result) {
  using A = Accumulator<T>;
  for_each_block(shape, map.chunks, map.groups.count, [&](ThreadPlace block) {
    std::vector<A> shared(256 * 2 * V, A(NAN));
    for_each_thread(block, [&](const ThreadPlace& place) {
      if constexpr (kOfGradients) {
        put_sums<A, V>(shared.data(), place, sum_gradients<T, V>(map, place));
      } else {
        put_sums<A, V>(shared.data(), place, sum_values<T, V>(map, place));
      }
    });
    for (int half = shape.size_y / 2; half > 0; half /= 2) {
      for_each_thread(block, [&](const ThreadPlace& place) {
        fold_sums<A, V>(shared.data(), place, half);
      });
    }
    for_each_thread(block, [&](const ThreadPlace& place) {
      write_partial<T, V>(map, place, shared.data());
    });
  });
  constexpr int kRows = 16;
  for (int group = 0; group < map.groups.count; ++group) {
    for (int64_t c = 0; c < map.channels; ++c) {
      double sums[2] = {};
      for (int row = 0; row < kRows; ++row) {
        double part[2];
        add_chunks(map, group, c, row, kRows, part);
        sums[0] += part[0];
        sums[1] += part[1];
      }
      if constexpr (kOfGradients) {
        finish_gradient_sums(map, group, c, sums);
      } else {
        finish_value_sums(map, group, c, sums);
      }
      double* const to = result + group * 2 * map.channels + c;
      to[0] = sums[0];
      to[map.channels] = sums[1];
    }
  }
}

template <typename T, int V, bool kOfGradients>
void writing_pass(const BlockShape& shape, const BatchNormMap<T>& map) {
  for_each_block(shape, map.chunks, map.groups.count, [&](ThreadPlace block) {
    for_each_thread(block, [&](const ThreadPlace& place) {
      if constexpr (kOfGradients) {
        normalise_backward<T, V>(map, place);
      } else {
        normalise<T, V>(map, place);
      }
    });
  });
}

}  // namespace headroom::cuda
