// How the threads of a block go over the pixels of its part of a map
// (batch_norm_body.h): several loads of 16 bytes before any is worked on.
// CUDA's language: for kernels alone.
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

// Channels of a tile.
template <int V>
__device__ int tile_width() {
  return static_cast<int>(blockDim.x) * V;
}

template <int V>
__device__ int64_t first_channel(const BlockPlace& place) {
  return static_cast<int64_t>(place.tile) * tile_width<V>();
}

// 0, but the compiler does not know it: what is read at an index with it is
// read anew in each round of a loop, which costs less than the registers to
// hold it.
__device__ inline int zero_anew() {
  int zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

// Calls body(left, are_all_here) for every kAtOnce of this thread's pixels,
// which lie blockDim.y apart; at the end some of them may be missing: those
// that are `left` or more pixels behind the first.
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

// A thread's way over one map, kAtOnce pixels at a time. It goes by addition:
// addresses from pixels' numbers would take the registers of loads.
template <int kAtOnce, int V, typename T>
class PixelPointer {
 public:
  __device__ PixelPointer(T* map, int64_t stride, const BlockPlace& place)
      : at_(map + (place.begin + threadIdx.y) * stride +
            first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V),
        hop_(static_cast<int64_t>(blockDim.y) * stride) {}

  // A pixel that is missing is `missing`.
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

// 16 bytes in one store, which the compiler makes four of otherwise.
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
