// Compiled once per instruction set: HEADROOM_INSTRUCTION_SET is its name,
// HEADROOM_VECTOR_BYTES the width of its registers.
#include "worker/kernels/cpu/vector_kernels.h"

#include "worker/kernels/cpu/vector_activations.h"
#include "worker/kernels/cpu/vector_formats.h"
#include "worker/kernels/cpu/vector_math.h"

namespace headroom::kernels {
namespace {

// Rows added in T before their sum goes to double: rounding stays at that of a
// few additions, and a tile stays in the first-level cache.
constexpr int64_t kTileRows = 32;

template <typename T>
inline __attribute__((always_inline)) void add_to(double* to,
                                                  const Pack<T>& pack) {
  T values[kPackElements<T>];
  store(values, pack);
  for (int64_t i = 0; i < kPackElements<T>; ++i) to[i] += values[i];
}

inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename E, typename S = StoredOf<E>, typename T = ValueOf<E>>
void sums(const S* y, int64_t rows, int64_t period, const T* shift, double* sum,
          double* sum_squares) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = smaller_of(begin + kTileRows, rows);
    for (int64_t column = 0; column < period; column += kPackElements<T>) {
      const Pack<T> centre = load(shift + column);
      Pack<T> total = {}, squares = {};
      for (int64_t i = begin; i < end; ++i) {
        const Pack<T> value = load_elements<E>(y + i * period + column);
        HEADROOM_EACH(k) {
          const Vector<T> d = value.v[k] - centre.v[k];
          total.v[k] += d;
          squares.v[k] += d * d;
        }
      }
      add_to(sum + column, total);
      add_to(sum_squares + column, squares);
    }
  }
}

template <typename E, template <typename> typename Function,
          typename S = StoredOf<E>, typename T = ValueOf<E>>
void forward(const S* y, S* out, int64_t rows, int64_t period, const T* mean,
             const T* scale, const T* bias, T slope) {
  for (int64_t i = 0; i < rows; ++i, y += period, out += period) {
    for (int64_t c = 0; c < period; c += kPackElements<T>) {
      const Pack<T> value = load_elements<E>(y + c), m = load(mean + c),
                    a = load(scale + c), b = load(bias + c);
      Pack<T> z;
      HEADROOM_EACH(k) z.v[k] = (value.v[k] - m.v[k]) * a.v[k] + b.v[k];
      store_elements<E>(out + c, Function<T>::value(z, slope));
    }
  }
}

template <typename E, template <typename> typename Function,
          typename S = StoredOf<E>, typename T = ValueOf<E>>
void backward_activation(const S* y, const S* dy, S* dz, int64_t rows,
                         int64_t period, const T* mean, const T* scale,
                         const T* bias, T slope, double* sum,
                         double* sum_centred) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows) {
    const int64_t end = smaller_of(begin + kTileRows, rows);
    for (int64_t column = 0; column < period; column += kPackElements<T>) {
      Pack<T> total = {}, total_centred = {};
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * period + column;
        Pack<T> centred = load_elements<E>(y + at), z,
                gradient = load_elements<E>(dy + at);
        const Pack<T> m = load(mean + column), a = load(scale + column),
                      b = load(bias + column);
        HEADROOM_EACH(k) centred.v[k] -= m.v[k];
        HEADROOM_EACH(k) z.v[k] = centred.v[k] * a.v[k] + b.v[k];
        gradient = Function<T>::gradient(z, gradient, slope);
        HEADROOM_EACH(k) {
          total.v[k] += gradient.v[k];
          total_centred.v[k] += gradient.v[k] * centred.v[k];
        }
        store_elements<E>(dz + at, gradient);
      }
      add_to(sum + column, total);
      add_to(sum_centred + column, total_centred);
    }
  }
}

template <typename E, typename S = StoredOf<E>, typename T = ValueOf<E>>
void backward_norm(const S* y, S* gradient, int64_t rows, int64_t period,
                   const T* mean, const T* scale, const T* offset,
                   const T* slope) {
  for (int64_t i = 0; i < rows; ++i, y += period, gradient += period) {
    for (int64_t c = 0; c < period; c += kPackElements<T>) {
      const Pack<T> value = load_elements<E>(y + c), m = load(mean + c),
                    a = load(scale + c), b = load(offset + c),
                    d = load(slope + c);
      Pack<T> g = load_elements<E>(gradient + c);
      HEADROOM_EACH(k)
      g.v[k] = g.v[k] * a.v[k] - b.v[k] - (value.v[k] - m.v[k]) * d.v[k];
      store_elements<E>(gradient + c, g);
    }
  }
}

template <typename E, template <typename> typename Function>
constexpr VectorKernels<E> kKernels = {
    kPackElements<ValueOf<E>>, sums<E>, forward<E, Function>,
    backward_activation<E, Function>, backward_norm<E>};

template <typename E>
const VectorKernels<E>& kernels_for(layers::ActivationKind activation) {
  switch (activation) {
    case layers::ActivationKind::kSilu:
      break;
    case layers::ActivationKind::kLeaky:
      return kKernels<E, Leaky>;
    case layers::ActivationKind::kHardswish:
      return kKernels<E, Hardswish>;
    case layers::ActivationKind::kMish:
      return kKernels<E, Mish>;
  }
  return kKernels<E, Silu>;
}

}  // namespace

#define HEADROOM_JOIN_TOKENS(a, b) a##_##b
#define HEADROOM_JOIN(a, b) HEADROOM_JOIN_TOKENS(a, b)

const VectorKernels<float>& HEADROOM_JOIN(float_kernels,
                                          HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<float>(activation);
}

const VectorKernels<double>& HEADROOM_JOIN(double_kernels,
                                           HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<double>(activation);
}

const VectorKernels<BFloat16Element>& HEADROOM_JOIN(bfloat16_kernels,
                                                    HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<BFloat16Element>(activation);
}

const VectorKernels<Float16Element>& HEADROOM_JOIN(float16_kernels,
                                                   HEADROOM_INSTRUCTION_SET)(
    layers::ActivationKind activation) {
  return kernels_for<Float16Element>(activation);
}

}  // namespace headroom::kernels
