// A thread processes V adjacent channels (16 bytes) of kPoolRows vertically
// adjacent cells. The windows of these cells overlap, so each row that the
// thread loads is used for several cells. Adjacent threads process the other
// channels of the same cells, then the cells of the next columns, whose data is
// mostly in the cache.
#include "parallel/cuda/kernels/pool_passes.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "parallel/base/units.h"
#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/pixel_loop.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks = 4;        // minimum number of blocks per multiprocessor
constexpr int kMostColumns = 32;  // threads for the channels of a cell
// Number of adjacent cells of a row that are loaded together: the width of the
// most common window.
constexpr int kAtOnce = 5;

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a > b ? a : b; }

// The position of a thread's cells, and the cells that it reads.
struct PoolPlace {
  bool is_inside;
  int64_t channel;
  int64_t sample;
  int row, column;  // position of the first cell
  int count;        // number of cells
  // Rows and columns that the thread reads, clipped at the map's edge. `top`
  // and `left` are the first row and column without clipping.
  int top, row_begin, row_end;
  int left, column_begin, column_end;
};

template <int V>
__device__ PoolPlace pool_place(const PoolArguments& a) {
  PoolPlace at;
  const unsigned strip = blockIdx.x * blockDim.y + threadIdx.y;
  const auto width = static_cast<unsigned>(a.width);
  const auto in_column =
      static_cast<unsigned>((a.to_rows + kPoolRows - 1) / kPoolRows);
  at.column = static_cast<int>(strip % width);
  at.row = static_cast<int>(strip / width % in_column) * kPoolRows;
  at.sample = strip / width / in_column;
  at.channel =
      (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  at.is_inside = at.channel < a.channels && at.sample < a.samples;
  at.count = smaller(kPoolRows, a.to_rows - at.row);
  at.top = at.row - a.rows_before;
  at.row_begin = larger(0, at.top);
  at.row_end = smaller(a.from_rows, at.top + at.count - 1 + a.window);
  at.left = at.column - a.window / 2;
  at.column_begin = larger(0, at.left);
  at.column_end = smaller(a.width, at.left + a.window);
  return at;
}

// The first cell that a thread reads in a row, as a pixel index.
__device__ inline int64_t first_pixel(const PoolArguments& a,
                                      const PoolPlace& at, int row) {
  return (at.sample * a.from_rows + row) * a.width + at.column_begin;
}

// Index of the thread's first channel in its cell `i` of the written map.
__device__ inline int64_t written_element(const PoolArguments& a,
                                          const PoolPlace& at, int i) {
  const int64_t pixel =
      (at.sample * a.to_rows + at.row + i) * a.width + at.column;
  return pixel * a.channels + at.channel;
}

// Writes the bytes of adjacent channels in one store.
template <int V>
__device__ void store_choices(const Pack<uint8_t, V>& choices, uint8_t* to) {
  if constexpr (V == 8) {
    uint64_t word;
    memcpy(&word, &choices, sizeof(word));
    *reinterpret_cast<uint64_t*>(to) = word;
  } else {
    *reinterpret_cast<Pack<uint8_t, V>*>(to) = choices;
  }
}

// The largest values so far, and their positions. A value is replaced by a
// larger one and by NaN, and NaN only by another NaN, as by LibTorch on the
// CPU.
template <typename A, int V>
struct Largest {
  A value[V];
  int cell[V];

  __device__ void start(int first_cell) {
    HEADROOM_UNROLL
    for (int v = 0; v < V; ++v) {
      value[v] = -static_cast<A>(INFINITY);
      cell[v] = first_cell;
    }
  }
  __device__ void take(int v, A other, int other_cell) {
    if (other > value[v] || std::isnan(other)) {
      value[v] = other;
      cell[v] = other_cell;
    }
  }
};

template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kBlocks)
    pool_kernel(const __grid_constant__ PoolArguments a) {
  using A = Accumulator<T>;
  const PoolPlace at = pool_place<V>(a);
  if (!at.is_inside) return;
  Largest<A, V> of_window[kPoolRows];
  const int first = at.column_begin - at.left;
  HEADROOM_UNROLL
  for (int i = 0; i < kPoolRows; ++i) {
    of_window[i].start(larger(0, -at.top - i) * a.window + first);
  }
  for (int row = at.row_begin; row < at.row_end; ++row) {
    const T* from = static_cast<const T*>(a.from) +
                    first_pixel(a, at, row) * a.from_stride + at.channel;
    Largest<A, V> in_row;
    in_row.start(first);
    HEADROOM_UNROLL_5
    for (int column = at.column_begin; column < at.column_end; ++column) {
      const Pack<T, V> cells = load_pack<V>(from);
      from += a.from_stride;
      HEADROOM_UNROLL
      for (int v = 0; v < V; ++v) {
        in_row.take(v, static_cast<A>(cells.at[v]), column - at.left);
      }
    }
    HEADROOM_UNROLL
    for (int i = 0; i < kPoolRows; ++i) {
      const int down = row - at.top - i;
      if (down < 0 || down >= a.window) continue;
      HEADROOM_UNROLL
      for (int v = 0; v < V; ++v) {
        of_window[i].take(v, in_row.value[v], down * a.window + in_row.cell[v]);
      }
    }
  }
  HEADROOM_UNROLL
  for (int i = 0; i < kPoolRows; ++i) {
    if (i >= at.count) break;
    const int64_t element = written_element(a, at, i);
    Pack<T, V> values;
    Pack<uint8_t, V> choices;
    HEADROOM_UNROLL
    for (int v = 0; v < V; ++v) {
      values.at[v] = static_cast<T>(of_window[i].value[v]);
      choices.at[v] = static_cast<uint8_t>(of_window[i].cell[v]);
    }
    store_pack<V>(values, static_cast<T*>(a.to) + element);
    if (a.choices != nullptr) store_choices<V>(choices, a.choices + element);
  }
}

// Adds up, for each cell, the gradients of the windows whose largest cell it
// is, row by row. So no two threads add to the same cell, and the result has
// the same bits every time.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads, kBlocks)
    pool_gradient_kernel(const __grid_constant__ PoolArguments a) {
  using A = Accumulator<T>;
  const PoolPlace at = pool_place<V>(a);
  if (!at.is_inside) return;
  A sums[kPoolRows][V] = {};
  for (int row = at.row_begin; row < at.row_end; ++row) {
    const int64_t pixel = first_pixel(a, at, row);
    const T* from =
        static_cast<const T*>(a.from) + pixel * a.from_stride + at.channel;
    const uint8_t* chosen = a.choices + pixel * a.channels + at.channel;
    for (int column = at.column_begin; column < at.column_end;
         column += kAtOnce) {
      Pack<T, V> gradients[kAtOnce];
      Pack<uint8_t, V> choices[kAtOnce];
      HEADROOM_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        gradients[k] = {};
        choices[k] = {};
        if (column + k >= at.column_end) continue;
        gradients[k] = load_pack<V>(from + k * a.from_stride);
        choices[k] = load_pack<V>(chosen + k * a.channels);
      }
      from += kAtOnce * a.from_stride;
      chosen += kAtOnce * a.channels;
      // The index of the thread's first cell in the first of these windows. If
      // the cell is above or below the window, no stored index of a largest
      // cell is equal to this one, so nothing is added.
      const int cell =
          (at.top + a.window - row) * a.window - 1 - (column - at.left);
      HEADROOM_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        HEADROOM_UNROLL
        for (int v = 0; v < V; ++v) {
          const int chosen_cell = choices[k].at[v];
          const A gradient = static_cast<A>(gradients[k].at[v]);
          HEADROOM_UNROLL
          for (int i = 0; i < kPoolRows; ++i) {
            if (chosen_cell == cell + i * a.window - k) sums[i][v] += gradient;
          }
        }
      }
    }
  }
  HEADROOM_UNROLL
  for (int i = 0; i < kPoolRows; ++i) {
    if (i >= at.count) break;
    Pack<T, V> values;
    HEADROOM_UNROLL
    for (int v = 0; v < V; ++v) values.at[v] = static_cast<T>(sums[i][v]);
    store_pack<V>(values, static_cast<T*>(a.to) + written_element(a, at, i));
  }
}

enum class Pass { kPool, kGradient };

template <Pass kPass, typename T, int V>
int launch(const PoolArguments& a, void* stream) {
  const int64_t strips = a.strips(), columns = divided_up(a.channels, V);
  if (strips == 0 || columns == 0) return cudaSuccess;
  // A power of two, so that no thread is unused.
  const unsigned wide = std::bit_ceil(
      static_cast<unsigned>(std::min<int64_t>(columns, kMostColumns)));
  const dim3 threads(wide, kThreads / wide);
  const dim3 blocks(static_cast<unsigned>(divided_up(strips, threads.y)),
                    static_cast<unsigned>(divided_up(columns, wide)));
  if constexpr (kPass == Pass::kPool) {
    return launch_kernel(pool_kernel<T, V>, blocks, threads, stream, a);
  } else {
    return launch_kernel(pool_gradient_kernel<T, V>, blocks, threads, stream,
                         a);
  }
}

template <Pass kPass, typename T>
int launch_typed(const PoolArguments& a, void* stream) {
  return a.is_aligned ? launch<kPass, T, kVectorBytes / sizeof(T)>(a, stream)
                      : launch<kPass, T, 1>(a, stream);
}

template <Pass kPass>
int launch_any(const PoolArguments& a, void* stream) {
  switch (a.type) {
    case ElementType::kFloat64:
      return launch_typed<kPass, double>(a, stream);
    case ElementType::kFloat32:
      return launch_typed<kPass, float>(a, stream);
    case ElementType::kBFloat16:
      return launch_typed<kPass, __nv_bfloat16>(a, stream);
    case ElementType::kFloat16:
      return launch_typed<kPass, __half>(a, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

extern "C" {

int headroom_max_pool(const PoolArguments* arguments, void* stream) {
  return launch_any<Pass::kPool>(*arguments, stream);
}

int headroom_max_pool_gradient(const PoolArguments* arguments, void* stream) {
  return launch_any<Pass::kGradient>(*arguments, stream);
}
}

}  // namespace headroom::cuda
