// How the threads of a block iterate over the pixels of its part of a map
// (batch_norm_body.h): several loads of 16 bytes before any pixel is processed.
// CUDA code, included by kernels only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "parallel/cuda/kernels/batch_norm_body.h"

#ifdef __CUDACC__
#define HEADROOM_UNROLL _Pragma("unroll")
#define HEADROOM_UNROLL_4 _Pragma("unroll 4")
#define HEADROOM_UNROLL_5 _Pragma("unroll 5")
#else
#define HEADROOM_UNROLL
#define HEADROOM_UNROLL_4
#define HEADROOM_UNROLL_5
#endif

namespace headroom::cuda {

__device__ inline int own_thread() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}

// Number of channels of a tile.
template <int V>
__device__ int tile_width() {
  return static_cast<int>(blockDim.x) * V;
}

template <int V>
__device__ int64_t first_channel(const BlockPlace& place) {
  return static_cast<int64_t>(place.tile) * tile_width<V>();
}

// Returns 0, a value that the compiler cannot predict. If a loop adds this
// value to the index of constant data, the data is read again in each
// iteration. Otherwise the compiler would keep the data in registers, which
// costs more than reading it.
__device__ inline int zero_anew() {
  int zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

// Calls body(left, are_all_here) for every kAtOnce of this thread's pixels,
// which are blockDim.y apart. In the last call some pixels may be missing:
// those that are `left` or more pixels after the first pixel of the call.
template <int kAtOnce, typename Body>
__device__ void for_own_pixels(const BlockPlace& place, const Body& body) {
  const int step = static_cast<int>(blockDim.y);
  int left =
      static_cast<int>(place.end - place.begin) - static_cast<int>(threadIdx.y);
  for (; left > (kAtOnce - 1) * step; left -= kAtOnce * step) {
    body(left, std::true_type());
  }
  if (left > 0) body(left, std::false_type());
}

// A thread's position in one map; it advances by kAtOnce pixels. It uses
// additions, because computing addresses from pixel numbers would need
// registers that the loads need.
template <int kAtOnce, int V, typename T>
class PixelPointer {
 public:
  __device__ PixelPointer(T* map, int64_t stride, const BlockPlace& place)
      : at_(map + (place.begin + threadIdx.y) * stride +
            first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V),
        hop_(static_cast<int64_t>(blockDim.y) * stride) {}

  // Missing pixels get the value `missing`.
  template <typename AllHere, typename Element>
  __device__ void load(int left, AllHere, const Pack<Element, V>& missing,
                       Pack<Element, V> (&to)[kAtOnce]) const {
    HEADROOM_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if constexpr (AllHere::value) {
        to[i] = load_pack<V>(static_cast<const Element*>(at_ + i * hop_));
      } else {
        to[i] = missing;
        if (i * static_cast<int>(blockDim.y) < left) {
          to[i] = load_pack<V>(static_cast<const Element*>(at_ + i * hop_));
        }
      }
    }
  }

  template <typename AllHere>
  __device__ void store(int left, AllHere,
                        const Pack<T, V> (&from)[kAtOnce]) const;

  __device__ void advance() { at_ += kAtOnce * hop_; }

 private:
  T* at_;
  const int64_t hop_;
};

// Stores 16 bytes at once; the compiler would otherwise generate four stores.
template <int V, typename T>
__device__ void store_pack(const Pack<T, V>& pack, T* to) {
  if constexpr (sizeof(pack) == kVectorBytes) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    __stcg(reinterpret_cast<uint4*>(to), words);
  } else {
    *reinterpret_cast<Pack<T, V>*>(to) = pack;
  }
}

template <int kAtOnce, int V, typename T>
template <typename AllHere>
__device__ void PixelPointer<kAtOnce, V, T>::store(
    int left, AllHere, const Pack<T, V> (&from)[kAtOnce]) const {
  HEADROOM_UNROLL
  for (int i = 0; i < kAtOnce; ++i) {
    if (!AllHere::value && i * static_cast<int>(blockDim.y) >= left) continue;
    store_pack<V>(from[i], at_ + i * hop_);
  }
}

}  // namespace headroom::cuda
