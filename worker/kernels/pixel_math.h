// pixel_math: the arithmetic of augmentation for one pixel: the source position
// of a warp, bilinear blending, mixing of two pictures, colour jitter.
//
// The CPU's loops (worker/data) and the kernel that renders samples on a device
// (parallel/cuda/kernels/render_body.h) use the same code, so a sample has the
// same bytes wherever it is rendered. Results must not depend on the processor,
// so the code uses integers, and floating point without fused multiply-add.
// Files that include it are compiled with -ffp-contract=off, or nvcc's
// -fmad=false.
//
// All functions are forced inline: row_kernels.cpp is compiled once per
// instruction set, and the linker would keep only one version of a shared
// function.
#pragma once

#include <climits>
#include <cstdint>

#ifdef __CUDACC__
#define HEADROOM_PIXEL __host__ __device__ __forceinline__
#else
#define HEADROOM_PIXEL [[gnu::always_inline]] inline
#endif

namespace headroom::kernels {

// Positions in a source picture are in 1/32 of a pixel.
inline constexpr int kPlaceBits = 5;
inline constexpr int kPlaces = 1 << kPlaceBits;

// --- source position of a warp ----------------------------------------------
// The fixed-point arithmetic of OpenCV's warpAffine and warpPerspective (4.6).

inline constexpr int kAffineBits = 10;
inline constexpr int kAffineScale = 1 << kAffineBits;
// warpPerspective counts columns from the start of a block of this width.
inline constexpr int kPerspectiveBlock = 64;

// The map from the warped picture to the source; a 3 x 3 matrix, row by row.
struct WarpInverse {
  double at[9];
  int32_t is_affine;
};

struct FetchPlace {
  int x, y;  // in 1/32 of a pixel
};

// Rounds half to even. Above 2^51 a double has no fraction that could be lost.
HEADROOM_PIXEL double rounded(double value) {
  constexpr double kNoFraction = 6755399441055744.0;  // 1.5 * 2^52
  return value + kNoFraction - kNoFraction;
}

// Returns INT_MIN for values that do not fit in an int, like x86's conversion
// instruction.
HEADROOM_PIXEL int rounded_or_least(double value) {
  const bool fits = value > -2147483648.5 && value < 2147483647.5;
  return fits ? static_cast<int>(rounded(value)) : INT_MIN;
}

HEADROOM_PIXEL int rounded_within_int(double value) {
  const double below = value < 2147483647.0 ? value : 2147483647.0;
  const double within = below > -2147483648.0 ? below : -2147483648.0;
  return static_cast<int>(rounded(within));
}

// Adds without undefined overflow. Positions that overflow are far outside the
// picture, where pixels are gray.
HEADROOM_PIXEL int wrapping_sum(int a, int b) {
  return static_cast<int>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// Affine maps, in 1/1024 of a pixel: the contribution of a column, and the
// start of a row. `row` of the matrix is 0 for x and 1 for y.
HEADROOM_PIXEL int affine_along(const WarpInverse& inverse, int row, int x) {
  return rounded_or_least(inverse.at[3 * row] * x * kAffineScale);
}
HEADROOM_PIXEL int affine_first(const WarpInverse& inverse, int row, double y) {
  constexpr int kRounding = kAffineScale / kPlaces / 2;
  const double first = inverse.at[3 * row + 1] * y + inverse.at[3 * row + 2];
  return wrapping_sum(rounded_or_least(first * kAffineScale), kRounding);
}
HEADROOM_PIXEL int affine_place(int first, int along) {
  return wrapping_sum(first, along) >> (kAffineBits - kPlaceBits);
}

// Perspective maps: the values for a block's first column, from which its other
// columns are computed.
struct BlockStart {
  double x, y, w;
};
HEADROOM_PIXEL BlockStart perspective_block(const WarpInverse& inverse,
                                            int first_column, double y) {
  const double* at = inverse.at;
  return {at[0] * first_column + at[1] * y + at[2],
          at[3] * first_column + at[4] * y + at[5],
          at[6] * first_column + at[7] * y + at[8]};
}
HEADROOM_PIXEL FetchPlace perspective_place(const WarpInverse& inverse,
                                            const BlockStart& start, int i) {
  const double w = start.w + inverse.at[6] * i;
  const double scale = w != 0 ? kPlaces / w : 0;
  return {rounded_within_int((start.x + inverse.at[0] * i) * scale),
          rounded_within_int((start.y + inverse.at[3] * i) * scale)};
}
HEADROOM_PIXEL int block_columns(int width) {
  return width < kPerspectiveBlock ? width : kPerspectiveBlock;
}

// The source position of pixel (x, y) of a warped picture that is `width`
// pixels wide.
HEADROOM_PIXEL FetchPlace fetch_place(const WarpInverse& inverse, int width,
                                      int x, int64_t y) {
  const auto row = static_cast<double>(y);
  if (inverse.is_affine != 0) {
    return {affine_place(affine_first(inverse, 0, row),
                         affine_along(inverse, 0, x)),
            affine_place(affine_first(inverse, 1, row),
                         affine_along(inverse, 1, x))};
  }
  const int columns = block_columns(width);
  const int first = x / columns * columns;
  return perspective_place(inverse, perspective_block(inverse, first, row),
                           x - first);
}

// --- blending and mixing -----------------------------------------------------

// Bilinear blending of a pixel with its neighbours to the right and below;
// `along_x` and `along_y` are the distances in 1/32. `Level` is uint8_t or
// uint16_t.
template <typename Level = uint8_t>
HEADROOM_PIXEL Level blended(int upper_left, int upper_right, int lower_left,
                             int lower_right, int along_x, int along_y) {
  constexpr int kRounding = kPlaces * kPlaces / 2;
  const int left = upper_left * (kPlaces - along_y) + lower_left * along_y;
  const int right = upper_right * (kPlaces - along_y) + lower_right * along_y;
  return static_cast<Level>(
      (left * (kPlaces - along_x) + right * along_x + kRounding) >>
      (2 * kPlaceBits));
}

// Mixup of two levels; fractions are truncated.
template <typename Level>
HEADROOM_PIXEL Level mixed(Level first, Level second, double ratio) {
  return static_cast<Level>(first * ratio + second * (1 - ratio));
}

// --- hue, saturation, value --------------------------------------------------

struct HsvFactors {
  float hue = 1, saturation = 1, value = 1;  // factors of 0 or more
  float added_hue = 0;                       // in [0, 180)
};

// Processes one pixel at a time. Vector code uses another type, in which Ints
// and Floats are vectors, a comparison gives a mask, and `?:` selects by this
// mask.
struct OneLane {
  using Ints = int32_t;
  using Floats = float;
  HEADROOM_PIXEL static float floats(int32_t value) {
    return static_cast<float>(value);
  }
  HEADROOM_PIXEL static int32_t cut(float value) {
    return static_cast<int32_t>(value);
  }
};

inline constexpr int kHues = 180;
inline constexpr int kSixthOfHues = kHues / 6;

template <typename Value>
HEADROOM_PIXEL Value larger(Value a, Value b) {
  return a < b ? b : a;
}
template <typename Value>
HEADROOM_PIXEL Value smaller(Value a, Value b) {
  return b < a ? b : a;
}

// Reduces a hue of at least one turn by one turn.
template <typename Ints>
HEADROOM_PIXEL Ints within_turn(Ints hue) {
  return hue >= kHues ? hue - kHues : hue;
}

// Either RGB, or hue in [0, 180), saturation and value.
template <typename Lanes>
struct Levels {
  typename Lanes::Ints first, second, third;
};

// Converts RGB to HSV, rounded to nearest.
template <typename Lanes>
HEADROOM_PIXEL Levels<Lanes> to_hsv(const Levels<Lanes>& colour) {
  using Ints = typename Lanes::Ints;
  using Floats = typename Lanes::Floats;
  const Ints red = colour.first, green = colour.second, blue = colour.third;
  const Ints value = larger(larger(red, green), blue);
  const Ints spread = value - smaller(smaller(red, green), blue);
  const Ints one = Ints{} + 1;
  const Floats per_spread =
      float{kSixthOfHues} / Lanes::floats(larger(spread, one));
  const auto is_red = value == red;
  const auto is_green = value == green;
  const Ints third = is_red ? Ints{} : (is_green ? Ints{} + 2 : Ints{} + 4);
  const Ints difference =
      is_red ? green - blue : (is_green ? blue - red : red - green);
  // Adds one turn, so that only positive numbers are rounded.
  const Ints turned =
      Lanes::cut(Lanes::floats(difference) * per_spread +
                 (Lanes::floats(kHues + third * kSixthOfHues) + 0.5F));
  const Floats saturation =
      Lanes::floats(spread) * 255.0F / Lanes::floats(larger(value, one));
  return {within_turn(turned), Lanes::cut(saturation + 0.5F), value};
}

template <typename Lanes>
HEADROOM_PIXEL typename Lanes::Ints jittered_hue(typename Lanes::Ints hue,
                                                 float factor, float added) {
  const typename Lanes::Floats moved = Lanes::floats(hue) * factor + added;
  const typename Lanes::Ints turns = Lanes::cut(moved * (1.0F / kHues));
  return within_turn(Lanes::cut(moved - Lanes::floats(turns * kHues)));
}

template <typename Lanes>
HEADROOM_PIXEL typename Lanes::Ints jittered_level(typename Lanes::Ints level,
                                                   float factor) {
  using Floats = typename Lanes::Floats;
  return Lanes::cut(
      smaller<Floats>(Lanes::floats(level) * factor, Floats{} + 255.0F));
}

// V - V S m, where m in [0, 1] depends on the distance of the hue from the
// channel's hue. Truncated, as in OpenCV. In integers: 7650 = 255 * 30.
template <typename Lanes>
HEADROOM_PIXEL typename Lanes::Ints channel_level(
    const Levels<Lanes>& hsv, typename Lanes::Floats value_saturation,
    int offset) {
  using Ints = typename Lanes::Ints;
  const Ints turned = within_turn<Ints>(hsv.first + offset);
  const Ints distance =
      larger(smaller(smaller<Ints>(turned, 4 * kSixthOfHues - turned),
                     Ints{} + kSixthOfHues),
             Ints{});
  constexpr float kScale = 255.0F * kSixthOfHues;
  // Rounds up; exact, because the numbers are below 2^21.
  const Ints taken = Lanes::cut(
      (value_saturation * Lanes::floats(distance) + (kScale - 0.5F)) *
      (1.0F / kScale));
  return hsv.third - taken;
}

// Converts RGB to 8-bit HSV (hue in 0..179), multiplies each by its factor and
// adds to the hue (hue modulo 180, the others at most 255), and converts back.
template <typename Lanes>
HEADROOM_PIXEL Levels<Lanes> jittered_colour(const Levels<Lanes>& colour,
                                             const HsvFactors& factors) {
  Levels<Lanes> hsv = to_hsv<Lanes>(colour);
  hsv.first = jittered_hue<Lanes>(hsv.first, factors.hue, factors.added_hue);
  hsv.second = jittered_level<Lanes>(hsv.second, factors.saturation);
  hsv.third = jittered_level<Lanes>(hsv.third, factors.value);
  const typename Lanes::Floats product =
      Lanes::floats(hsv.third) * Lanes::floats(hsv.second);
  return {channel_level<Lanes>(hsv, product, 5 * kSixthOfHues),
          channel_level<Lanes>(hsv, product, 3 * kSixthOfHues),
          channel_level<Lanes>(hsv, product, kSixthOfHues)};
}

}  // namespace headroom::kernels
