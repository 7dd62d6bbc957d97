// What CUDA threads compute on a flat buffer at the end of a step: the gradient
// norm; accumulation, clipping, optimizer and EMA in one pass; and the running
// statistics. The code is plain C++, so a test can run it on the CPU.
//
// The flat buffer is divided into pieces, each within one parameter group; a
// block of threads processes one piece. Elements in no group (frozen layers,
// padding) are only averaged.
#pragma once

#include <cstdint>

#include "parallel/base/device_scratch.h"
#include "worker/kernels/commit_numbers.h"
#include "worker/kernels/element_math.h"

namespace headroom::cuda {

struct FlatBufferPiece {
  int64_t offset = 0;  // first element in the flat buffer
  int32_t size = 0;    // number of elements, at most kMostPieceElements
  // Parameter group of the piece; -1 if its elements are only averaged.
  int32_t group = -1;
};
static_assert(sizeof(FlatBufferPiece) == kPieceBytes);

// The `void` pointers are device arrays of float or double, with one element
// per element of the flat buffer. They do not overlap.
struct FlatBufferArguments {
  bool is_double = false;
  void* parameters = nullptr;
  const void* gradients = nullptr;  // this step's gradient
  void* accumulated = nullptr;
  void* first_moment = nullptr;   // Adam's first moment, or SGD's momentum
  void* second_moment = nullptr;  // Adam's second moment; nullptr for SGD
  void* average = nullptr;        // EMA; nullptr if there is none
  const FlatBufferPiece* pieces = nullptr;
  int64_t num_pieces = 0;
  const kernels::CommitNumbers* numbers = nullptr;
  const double* items = nullptr;  // [kStepItems], for the sums of squares
  const kernels::CommitOutcome* outcome = nullptr;
  double* partial = nullptr;  // [num_pieces] sums of squares
};

// The decision whether a step counts, from the `partial` sums of squares.
struct DecisionArguments {
  const double* partial = nullptr;
  int64_t count = 0;
  const double* items = nullptr;  // [kStepItems]
  const kernels::CommitNumbers* numbers = nullptr;
  kernels::CommitOutcome* outcome = nullptr;
  const double* objections = nullptr;     // may be nullptr
  const int32_t* failure_word = nullptr;  // on the host; may be nullptr
};

// The running statistics and their EMA, float or double.
struct RunningArguments {
  bool is_double = false;
  void* statistics = nullptr;
  void* average = nullptr;
  const double* sums = nullptr;     // over all groups of the step
  const int64_t* places = nullptr;  // index into `sums` for each element
  int64_t size = 0;
  double momentum = 0;
  const kernels::CommitNumbers* numbers = nullptr;
  const kernels::CommitOutcome* outcome = nullptr;
};

// Element `i` of the scaled gradient plus that of the accumulated gradient.
template <typename T>
HEADROOM_HD T whole_gradient(const FlatBufferArguments& arguments, T scale,
                             int64_t i) {
  return static_cast<const T*>(arguments.accumulated)[i] +
         static_cast<const T*>(arguments.gradients)[i] * scale;
}

// Sums the squares of elements first, first + step, ... of `piece`.
template <typename T>
HEADROOM_HD double squares_of_piece(const FlatBufferArguments& arguments,
                                    FlatBufferPiece piece, int first,
                                    int step) {
  const T scale = static_cast<T>(arguments.numbers->gradient_scale /
                                 kernels::divisor_of(arguments.items));
  double sum = 0;
  for (int k = first; k < piece.size; k += step) {
    const double value = whole_gradient(arguments, scale, piece.offset + k);
    sum += value * value;
  }
  return sum;
}

HEADROOM_HD bool is_number(double value) { return value - value == 0; }

HEADROOM_HD void decide(const DecisionArguments& arguments,
                        double squared_norm) {
  kernels::CommitOutcome& outcome = *arguments.outcome;
  // Volatile: the host sets the word at any time.
  const volatile int32_t* const failure = arguments.failure_word;
  const bool is_complete = failure == nullptr || *failure == 0;
  bool is_good =
      is_complete && arguments.numbers->may_commit && is_number(squared_norm) &&
      (arguments.objections == nullptr || *arguments.objections == 0);
  for (int i = 0; i < kernels::kStepItems; ++i) {
    outcome.items[i] = arguments.items[i];
    is_good = is_good && is_number(arguments.items[i]);
  }
  outcome.squared_norm = squared_norm;
  outcome.clip = kernels::clip_coefficient(std::sqrt(squared_norm),
                                           kernels::kMostGradientNorm);
  outcome.commits = is_good ? 1 : 0;
  outcome.is_complete = is_complete ? 1 : 0;
}

template <typename C>
HEADROOM_HD bool is_committed(const C& arguments) {
  return arguments.numbers->ends_step && arguments.outcome->commits != 0;
}

// Rounds each coefficient once, from double.
template <typename T>
HEADROOM_HD kernels::SgdCoefficients<T> rounded(
    const kernels::SgdCoefficients<double>& c, double clip) {
  return {static_cast<T>(c.lr), static_cast<T>(c.weight_decay),
          static_cast<T>(c.momentum), static_cast<T>(clip), c.first_step};
}

template <typename T>
HEADROOM_HD kernels::AdamCoefficients<T> rounded(
    const kernels::AdamCoefficients<double>& c, double clip) {
  kernels::AdamCoefficients<T> result;
  result.step_size = static_cast<T>(c.step_size);
  result.root_of_correction = static_cast<T>(c.root_of_correction);
  result.one_minus_beta1 = static_cast<T>(c.one_minus_beta1);
  result.beta2 = static_cast<T>(c.beta2);
  result.one_minus_beta2 = static_cast<T>(c.one_minus_beta2);
  result.epsilon = static_cast<T>(c.epsilon);
  result.clip = static_cast<T>(clip);
  result.weight_decay = static_cast<T>(c.weight_decay);
  result.shrink = static_cast<T>(c.shrink);
  return result;
}

// REQUIRES: is_committed().
template <bool kIsAdam, typename T>
HEADROOM_HD void commit_piece(const FlatBufferArguments& arguments,
                              FlatBufferPiece piece, int first, int step) {
  const kernels::CommitNumbers& numbers = *arguments.numbers;
  const int group = piece.group < 0 ? 0 : piece.group;
  const double clip = arguments.outcome->clip;
  const auto sgd = rounded<T>(numbers.sgd[group], clip);
  const auto adam = rounded<T>(numbers.adam[group], clip);
  const T scale = static_cast<T>(numbers.gradient_scale /
                                 kernels::divisor_of(arguments.outcome->items));
  const T weight = static_cast<T>(numbers.average_weight);
  T* const parameters = static_cast<T*>(arguments.parameters);
  T* const accumulated = static_cast<T*>(arguments.accumulated);
  T* const first_moments = static_cast<T*>(arguments.first_moment);
  T* const second_moments = static_cast<T*>(arguments.second_moment);
  T* const averages = static_cast<T*>(arguments.average);
  const bool steps = numbers.steps_optimizer;
  const bool is_stepped = steps && piece.group >= 0;
  const bool is_averaged = steps && averages != nullptr;
  for (int k = first; k < piece.size; k += step) {
    const int64_t i = piece.offset + k;
    // Read everything before writing anything: the compiler must assume that
    // the buffers overlap, so a load after a store would wait for it.
    const T gradient = whole_gradient(arguments, scale, i);
    T parameter = 0, first_moment = 0, second_moment = 0, average = 0;
    if (is_stepped || is_averaged) parameter = parameters[i];
    if (is_stepped) {
      // SGD's momentum before the first step is not read.
      if (kIsAdam || !sgd.first_step) first_moment = first_moments[i];
      if constexpr (kIsAdam) second_moment = second_moments[i];
    }
    if (is_averaged) average = averages[i];

    accumulated[i] = steps ? T(0) : gradient;
    if (is_stepped) {
      if constexpr (kIsAdam) {
        kernels::adam_element(parameter, gradient, first_moment, second_moment,
                              adam);
        second_moments[i] = second_moment;
      } else {
        kernels::sgd_element(parameter, gradient, first_moment, sgd);
      }
      first_moments[i] = first_moment;
      parameters[i] = parameter;
    }
    if (is_averaged) {
      kernels::average_element(average, parameter, weight);
      averages[i] = average;
    }
  }
}

// running = (1 - momentum) * running + momentum * sum / num_groups.
// REQUIRES: is_committed().
template <typename T>
HEADROOM_HD void move_running_element(const RunningArguments& arguments,
                                      int64_t i) {
  const kernels::CommitNumbers& numbers = *arguments.numbers;
  const double mean = arguments.sums[arguments.places[i]] / numbers.num_groups;
  T& running = static_cast<T*>(arguments.statistics)[i];
  running =
      static_cast<T>((1 - arguments.momentum) * static_cast<double>(running) +
                     arguments.momentum * mean);
  if (!numbers.steps_optimizer) return;
  kernels::average_element(static_cast<T*>(arguments.average)[i], running,
                           static_cast<T>(numbers.average_weight));
}

}  // namespace headroom::cuda

// The launchers; see launch.h for their contract. If numbers->ends_step is
// false, their kernels do nothing.
extern "C" {
// Writes the sum of squares of the gradient for each piece to `partial`.
int headroom_gradient_squares(
    const headroom::cuda::FlatBufferArguments* arguments, void* stream);
int headroom_decide(const headroom::cuda::DecisionArguments* arguments,
                    void* stream);
// The next two also do nothing if `outcome->commits` is 0.
int headroom_commit(const headroom::cuda::FlatBufferArguments* arguments,
                    void* stream);
int headroom_move_running(const headroom::cuda::RunningArguments* arguments,
                          void* stream);
}
