// Compiled once per instruction set: HEADROOM_INSTRUCTION_SET is its name,
// HEADROOM_VECTOR_BYTES the width of its registers.
#include "worker/model/kernels/vector_kernels.h"

#include "worker/model/kernels/vector_math.h"

namespace headroom {
namespace {

// Vectors of neighbouring columns that are worked on together: enough
// independent additions to hide their latency.
constexpr int64_t kColumns = 4;
template <typename T>
constexpr int64_t kBlock = kColumns* kLanes<T>;

// Rows added in T before their sum goes to double: rounding stays at that of a
// few additions, and a tile stays in the first-level cache.
constexpr int64_t kTileRows = 32;

template <typename T>
inline __attribute__((always_inline)) void flush(const Vector<T>* vectors,
                                                 double* to) {
  T values[kBlock<T>];
  for (int64_t k = 0; k < kColumns; ++k)
    store(values + k * kLanes<T>, vectors[k]);
  for (int64_t i = 0; i < kBlock<T>; ++i) to[i] += values[i];
}

template <typename T>
void sums(const T* y, int64_t rows, int64_t period, const T* shift, double* sum,
          double* sum_squares) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = begin + kTileRows < rows ? begin + kTileRows : rows;
    for (int64_t column = 0; column < period; column += kBlock<T>) {
      Vector<T> centre[kColumns], total[kColumns] = {}, squares[kColumns] = {};
      for (int64_t k = 0; k < kColumns; ++k)
        centre[k] = load(shift + column + k * kLanes<T>);
      const T* row = y + begin * period + column;
      for (int64_t i = begin; i < end; ++i, row += period) {
        for (int64_t k = 0; k < kColumns; ++k) {
          const Vector<T> d = load(row + k * kLanes<T>) - centre[k];
          total[k] += d;
          squares[k] += d * d;
        }
      }
      flush<T>(total, sum + column);
      flush<T>(squares, sum_squares + column);
    }
  }
}

template <typename T>
void forward(const T* y, T* out, int64_t rows, int64_t period, const T* mean,
             const T* scale, const T* bias) {
  for (int64_t i = 0; i < rows; ++i, y += period, out += period) {
    for (int64_t c = 0; c < period; c += kLanes<T>) {
      const Vector<T> z =
          (load(y + c) - load(mean + c)) * load(scale + c) + load(bias + c);
      store(out + c, z / (T(1) + exponential<T>(-z)));
    }
  }
}

template <typename T>
struct Gradient {
  Vector<T> centred;  // y - mean
  Vector<T> dz;
};

template <typename T>
inline __attribute__((always_inline)) Gradient<T> gradient(
    const T* y, const T* dy, const T* mean, const T* scale, const T* bias) {
  const Vector<T> centred = load(y) - load(mean);
  const Vector<T> z = centred * load(scale) + load(bias);
  // e * s is 1 - s without the cancellation.
  const Vector<T> e = exponential<T>(-z);
  const Vector<T> s = T(1) / (T(1) + e);
  return {centred, load(dy) * s * (T(1) + z * (e * s))};
}

template <typename T>
void backward_sums(const T* y, const T* dy, int64_t rows, int64_t period,
                   const T* mean, const T* scale, const T* bias, double* sum,
                   double* sum_centred) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = begin + kTileRows < rows ? begin + kTileRows : rows;
    for (int64_t column = 0; column < period; column += kBlock<T>) {
      Vector<T> total[kColumns] = {}, centred[kColumns] = {};
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * period + column;
        for (int64_t k = 0; k < kColumns; ++k) {
          const int64_t c = k * kLanes<T>;
          const Gradient<T> g =
              gradient(y + at + c, dy + at + c, mean + column + c,
                       scale + column + c, bias + column + c);
          total[k] += g.dz;
          centred[k] += g.dz * g.centred;
        }
      }
      flush<T>(total, sum + column);
      flush<T>(centred, sum_centred + column);
    }
  }
}

template <typename T>
void backward(const T* y, const T* dy, T* dx, int64_t rows, int64_t period,
              const T* mean, const T* scale, const T* bias, const T* offset,
              const T* slope) {
  for (int64_t i = 0; i < rows; ++i, y += period, dy += period, dx += period) {
    for (int64_t c = 0; c < period; c += kLanes<T>) {
      const Gradient<T> g =
          gradient(y + c, dy + c, mean + c, scale + c, bias + c);
      store(dx + c, load(scale + c) * g.dz - load(offset + c) -
                        g.centred * load(slope + c));
    }
  }
}

template <typename T>
constexpr VectorKernels<T> kKernels = {kBlock<T>, sums<T>, forward<T>,
                                       backward_sums<T>, backward<T>};

}  // namespace

#define HEADROOM_JOIN_TOKENS(a, b) a##_##b
#define HEADROOM_JOIN(a, b) HEADROOM_JOIN_TOKENS(a, b)

const VectorKernels<float>& HEADROOM_JOIN(float_kernels,
                                          HEADROOM_INSTRUCTION_SET)() {
  return kKernels<float>;
}

const VectorKernels<double>& HEADROOM_JOIN(double_kernels,
                                           HEADROOM_INSTRUCTION_SET)() {
  return kKernels<double>;
}

}  // namespace headroom
