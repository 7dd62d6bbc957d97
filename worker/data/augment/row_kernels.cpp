// Compiled once per instruction set. HEADROOM_ROW_KERNELS is the name of the
// function that returns the kernels of that set.
#include "worker/data/augment/row_kernels.h"

#include <cstring>

#if defined(__SSSE3__)
#include <immintrin.h>
#endif

namespace headroom::augment {
namespace {

// The kind of a pixel of the row. kGray: outside all tiles. kBorder: near the
// border of a tile. A number k > 0: all four source pixels are in tile k - 1.
enum Kind : int { kGray = 0, kBorder = -1 };

// Selects without a branch, so that the compiler can vectorise loops.
inline int all_bits(bool condition) { return -static_cast<int>(condition); }
inline int pick(int mask, int yes, int no) {
  return (mask & yes) | (~mask & no);
}
// Determines the kind of each position from its pixel and the neighbours to the
// right and below.
void find_kinds(const int* __restrict xs, const int* __restrict ys, int count,
                const TileView* tiles, int num_tiles, int* __restrict kinds) {
  for (int i = 0; i < count; ++i) kinds[i] = kGray;
  for (int tile = 0; tile < num_tiles; ++tile) {
    const TileView& view = tiles[tile];
    const auto width = static_cast<unsigned>(view.end_x - view.begin_x);
    const auto height = static_cast<unsigned>(view.end_y - view.begin_y);
    if (width == 0 || height == 0) continue;
    // fetch_inner reads eight bytes, more than two pixels, from the left pixel
    // on, so pixels in the last two columns are handled as border pixels.
    const unsigned inner_width = width > 2 ? width - 2 : 0;
    const unsigned inner_height = height - 1;
    const int number = tile + 1;
    const int begin_x = view.begin_x, begin_y = view.begin_y;
    for (int i = 0; i < count; ++i) {
      const auto x =
          static_cast<unsigned>((xs[i] >> kernels::kPlaceBits) - begin_x);
      const auto y =
          static_cast<unsigned>((ys[i] >> kernels::kPlaceBits) - begin_y);
      const int inside = all_bits(x < inner_width) & all_bits(y < inner_height);
      const int touched =
          all_bits(x + 1 < width + 1) & all_bits(y + 1 < height + 1);
      const int kind = pick(inside, number, kBorder);
      kinds[i] = pick(touched, kind, kinds[i]);
    }
  }
}

const uint8_t* pixel_at(const TileView* tiles, int num_tiles, int x, int y) {
  for (int i = 0; i < num_tiles; ++i) {
    const TileView& tile = tiles[i];
    if (x >= tile.begin_x && x < tile.end_x && y >= tile.begin_y &&
        y < tile.end_y) {
      return tile.pixels + (y - tile.top) * tile.step + 3 * (x - tile.left);
    }
  }
  return nullptr;
}

void blend(const uint8_t* const around[4], int along_x, int along_y,
           uint8_t gray, uint8_t* target) {
  for (int channel = 0; channel < 3; ++channel) {
    int value[4];
    for (int i = 0; i < 4; ++i) {
      value[i] = around[i] != nullptr ? around[i][channel] : gray;
    }
    target[channel] = kernels::blended(value[0], value[1], value[2], value[3],
                                       along_x, along_y);
  }
}

void fetch_border(int place_x, int place_y, const TileView* tiles,
                  int num_tiles, uint8_t gray, uint8_t* target) {
  const int x = place_x >> kernels::kPlaceBits,
            y = place_y >> kernels::kPlaceBits;
  const uint8_t* const around[4] = {pixel_at(tiles, num_tiles, x, y),
                                    pixel_at(tiles, num_tiles, x + 1, y),
                                    pixel_at(tiles, num_tiles, x, y + 1),
                                    pixel_at(tiles, num_tiles, x + 1, y + 1)};
  blend(around, place_x & (kernels::kPlaces - 1),
        place_y & (kernels::kPlaces - 1), gray, target);
}

#if defined(__SSSE3__)
// Blending weights for each 32nd of a pixel: of the upper and lower row as
// bytes, and of the left and right column as 16-bit words.
struct Weights {
  alignas(16) int8_t rows[kernels::kPlaces][16];
  alignas(16) int16_t columns[kernels::kPlaces][8];
};
constexpr Weights make_weights() {
  Weights weights{};
  for (int place = 0; place < kernels::kPlaces; ++place) {
    for (int i = 0; i < 8; ++i) {
      weights.rows[place][2 * i] =
          static_cast<int8_t>(kernels::kPlaces - place);
      weights.rows[place][2 * i + 1] = static_cast<int8_t>(place);
      weights.columns[place][i] =
          static_cast<int16_t>(i % 2 == 0 ? kernels::kPlaces - place : place);
    }
  }
  return weights;
}
constexpr Weights kWeights = make_weights();

// Writes four bytes: three of the pixel, and one that the caller overwrites.
inline void fetch_inner(const uint8_t* upper, const uint8_t* lower, int along_x,
                        int along_y, uint8_t* target) {
  const auto load = [](const void* bytes) {
    return _mm_loadl_epi64(static_cast<const __m128i*>(bytes));
  };
  const auto weights = [](const void* of_place) {
    return _mm_load_si128(static_cast<const __m128i*>(of_place));
  };
  // r g b r' g' b' . . as weighted sums of both rows: at most 32 * 255
  const __m128i columns =
      _mm_maddubs_epi16(_mm_unpacklo_epi8(load(upper), load(lower)),
                        weights(kWeights.rows[along_y]));
  // r r' g g' b b' . .
  const __m128i pairs = _mm_unpacklo_epi16(columns, _mm_srli_si128(columns, 6));
  const __m128i sums =
      _mm_madd_epi16(pairs, weights(kWeights.columns[along_x]));
  const __m128i values = _mm_srli_epi32(
      _mm_add_epi32(sums,
                    _mm_set1_epi32(kernels::kPlaces * kernels::kPlaces / 2)),
      2 * kernels::kPlaceBits);
  const __m128i narrow = _mm_packs_epi32(values, values);
  const int colour = _mm_cvtsi128_si32(_mm_packus_epi16(narrow, narrow));
  std::memcpy(target, &colour, 4);
}
#else
inline void fetch_inner(const uint8_t* upper, const uint8_t* lower, int along_x,
                        int along_y, uint8_t* target) {
  const uint8_t* const around[4] = {upper, upper + 3, lower, lower + 3};
  blend(around, along_x, along_y, 0, target);
}
#endif

// Fetches pixels whose four neighbours are all in the tile. `offsets` is
// scratch memory.
void fetch_inner_run(const int* __restrict xs, const int* __restrict ys,
                     int begin, int end, const TileView& tile,
                     int* __restrict offsets, uint8_t* target) {
  const auto step = static_cast<int>(tile.step);
  const int left = tile.left, top = tile.top;
  for (int i = begin; i < end; ++i) {
    offsets[i] = ((ys[i] >> kernels::kPlaceBits) - top) * step +
                 3 * ((xs[i] >> kernels::kPlaceBits) - left);
  }
  const uint8_t* const pixels = tile.pixels;
  for (int i = begin; i < end; ++i) {
    const uint8_t* const upper = pixels + offsets[i];
    fetch_inner(upper, upper + step, xs[i] & (kernels::kPlaces - 1),
                ys[i] & (kernels::kPlaces - 1), target + 3 * i);
  }
}

void fetch(const int* xs, const int* ys, int count, const TileView* tiles,
           int num_tiles, uint8_t gray, int* kinds, uint8_t* target) {
  find_kinds(xs, ys, count, tiles, num_tiles, kinds);
  for (int begin = 0; begin < count;) {
    const int kind = kinds[begin];
    int end = begin + 1;
    while (end < count && kinds[end] == kind) ++end;
    if (kind > 0) {
      fetch_inner_run(xs, ys, begin, end, tiles[kind - 1], kinds, target);
    } else if (kind == kGray) {
      std::memset(target + 3 * begin, gray,
                  3 * static_cast<size_t>(end - begin));
    } else {
      for (int i = begin; i < end; ++i) {
        fetch_border(xs[i], ys[i], tiles, num_tiles, gray, target + 3 * i);
      }
    }
    begin = end;
  }
}

// Vectors that hold one number per pixel and fill a register.
using Ints __attribute__((vector_size(HEADROOM_VECTOR_BYTES))) = int32_t;
using Floats __attribute__((vector_size(HEADROOM_VECTOR_BYTES))) = float;
constexpr int kLanes = HEADROOM_VECTOR_BYTES / 4;
static_assert(kLanes <= kMaxLanes);

struct VectorLanes {
  using Ints = headroom::augment::Ints;
  using Floats = headroom::augment::Floats;
  static Floats floats(Ints values) {
    return __builtin_convertvector(values, Floats);
  }
  static Ints cut(Floats values) {
    return __builtin_convertvector(values, Ints);
  }
};

void jitter_colours(int32_t* colours, const kernels::HsvFactors& factors) {
  Ints packed;
  std::memcpy(&packed, colours, sizeof(packed));
  const kernels::Levels<VectorLanes> colour =
      kernels::jittered_colour<VectorLanes>(
          {packed & 255, (packed >> 8) & 255, (packed >> 16) & 255}, factors);
  packed = colour.first | (colour.second << 8) | (colour.third << 16);
  std::memcpy(colours, &packed, sizeof(packed));
}

// Convert three bytes per pixel to one number per pixel, and back.
void unpack(const uint8_t* pixels, int count, int32_t* colours) {
  int i = 0;
#if defined(__SSSE3__)
  const __m128i spread =
      _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  for (; i + 6 <= count; i += 4) {  // sixteen bytes are read
    const __m128i four =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 3 * i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(colours + i),
                     _mm_shuffle_epi8(four, spread));
  }
#endif
  for (; i < count; ++i) {
    colours[i] =
        pixels[3 * i] | (pixels[3 * i + 1] << 8) | (pixels[3 * i + 2] << 16);
  }
}

void pack(const int32_t* colours, int count, uint8_t* pixels) {
  int i = 0;
#if defined(__SSSE3__)
  const __m128i close =
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for (; i + 6 <= count; i += 4) {  // sixteen bytes are written
    const __m128i four =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(colours + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + 3 * i),
                     _mm_shuffle_epi8(four, close));
  }
#endif
  for (; i < count; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      pixels[3 * i + channel] =
          static_cast<uint8_t>(colours[i] >> (8 * channel));
    }
  }
}

void jitter(uint8_t* pixels, int count, const kernels::HsvFactors& factors,
            int32_t* colours) {
  unpack(pixels, count, colours);
  for (int i = 0; i < kLanes; ++i) colours[count + i] = 0;
  for (int i = 0; i < count; i += kLanes) jitter_colours(colours + i, factors);
  pack(colours, count, pixels);
}

}  // namespace

const RowKernels& HEADROOM_ROW_KERNELS() {
  static constexpr RowKernels kKernels{fetch, jitter};
  return kKernels;
}

}  // namespace headroom::augment
