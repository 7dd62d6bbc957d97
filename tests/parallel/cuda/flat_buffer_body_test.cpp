// The flat buffer's kernel, run on the CPU (tests/support/host_cuda), against
// worker/optim.
#include "parallel/cuda/kernels/flat_buffer_body.h"

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/base/check.h"
#include "parallel/cuda/kernels/flat_buffer_pieces.h"
#include "worker/optim/optimizer.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kSize = 21000;
const std::vector<devices::FlatBufferRange> kRanges = {
    {0, 5000, 1}, {5000, 40, 0}, {6000, 4096, 2}, {11000, 9000, 1}};
const optim::AllGroupSettings kGroups = {{{0.1, 0}, {0.01, 5e-4}, {0.02, 0}}};
constexpr double kMomentum = 0.9, kClip = 0.7;

std::vector<optim::Segment> segments() {
  std::vector<optim::Segment> all;
  for (const devices::FlatBufferRange& range : kRanges) {
    all.push_back({range.offset, range.size, range.group});
  }
  return all;
}

template <FlatBufferRule kRule, typename T>
void run(const FlatBufferArrays<T>& arrays,
         const FlatBufferCoefficients<T>& with) {
  const std::vector<FlatBufferPiece> pieces =
      flat_buffer_pieces(kRanges, kSize);
  const auto count = static_cast<int64_t>(pieces.size());
  int error = 0;
  if constexpr (std::is_same_v<T, float>) {
    error = headroom_flat_buffer_step_float(kRule, &arrays, &with,
                                            pieces.data(), count, nullptr);
  } else {
    error = headroom_flat_buffer_step_double(kRule, &arrays, &with,
                                             pieces.data(), count, nullptr);
  }
  EXPECT_EQ(error, 0);
}

struct State {
  at::Tensor parameters, gradients, first, second, average;

  explicit State(at::ScalarType type) {
    const auto options = at::TensorOptions(type);
    at::manual_seed(3);
    parameters = at::randn({kSize}, options);
    gradients = at::randn({kSize}, options);
    first = at::zeros({kSize}, options);
    second = at::zeros({kSize}, options);
    average = parameters.clone();
  }

  template <typename T>
  FlatBufferArrays<T> arrays() {
    return {parameters.mutable_data_ptr<T>(), gradients.const_data_ptr<T>(),
            first.mutable_data_ptr<T>(), second.mutable_data_ptr<T>(),
            average.mutable_data_ptr<T>()};
  }
};

void expect_equal(const State& a, const State& b) {
  EXPECT_TRUE(a.parameters.equal(b.parameters));
  EXPECT_TRUE(a.first.equal(b.first));
  EXPECT_TRUE(a.second.equal(b.second));
  // LibTorch's lerp may fuse a product and a sum.
  EXPECT_TRUE(a.average.allclose(b.average, 1e-6, 1e-7));
}

TEST(FlatBufferBody, SgdEqualsTheOptimizers) {
  State kernel(at::kFloat), optimizer(at::kFloat);
  for (int64_t update = 1; update <= 3; ++update) {
    optim::sgd_step(optimizer.parameters, optimizer.gradients, optimizer.first,
                    segments(), kGroups, kMomentum, kClip, update == 1);
    optim::ema_update(optimizer.average, optimizer.parameters, update);

    FlatBufferCoefficients<float> with;
    for (int g = 0; g < 3; ++g) {
      with.sgd[g] = {static_cast<float>(kGroups[g].lr),
                     static_cast<float>(kGroups[g].weight_decay),
                     static_cast<float>(kMomentum), static_cast<float>(kClip),
                     update == 1};
    }
    with.average_weight = static_cast<float>(1 - optim::ema_decay(update));
    run<FlatBufferRule::kSgd>(kernel.arrays<float>(), with);
    expect_equal(kernel, optimizer);
  }
}

TEST(FlatBufferBody, AdamWEqualsTheOptimizers) {
  State kernel(at::kDouble), optimizer(at::kDouble);
  for (int64_t update = 1; update <= 3; ++update) {
    optim::adam_step(optimizer.parameters, optimizer.gradients, optimizer.first,
                     optimizer.second, segments(), kGroups,
                     {kMomentum, update, kClip, /*decoupled_decay=*/true});
    optim::ema_update(optimizer.average, optimizer.parameters, update);

    const double t = static_cast<double>(update);
    const double clip = kClip;  // as the device knows it
    FlatBufferCoefficients<double> with;
    for (int g = 0; g < 3; ++g) {
      kernels::AdamCoefficients<double>& c = with.adam[g];
      c.step_size = kGroups[g].lr / (1 - std::pow(kMomentum, t));
      c.root_of_correction = std::sqrt(1 - std::pow(0.999, t));
      c.one_minus_beta1 = 1 - kMomentum;
      c.beta2 = 0.999;
      c.one_minus_beta2 = 1 - 0.999;
      c.epsilon = 1e-8;
      c.clip = 99;
      c.shrink = 1 - kGroups[g].lr * kGroups[g].weight_decay;
    }
    with.clip = &clip;
    with.average_weight = 1 - optim::ema_decay(update);
    run<FlatBufferRule::kAdam>(kernel.arrays<double>(), with);
    expect_equal(kernel, optimizer);
  }
}

TEST(FlatBufferBody, AnAverageIsNotRequired) {
  State kernel(at::kFloat);
  const at::Tensor before = kernel.average.clone();
  FlatBufferArrays<float> arrays = kernel.arrays<float>();
  arrays.average = nullptr;
  FlatBufferCoefficients<float> with;
  with.average_weight = 1;
  run<FlatBufferRule::kSgd>(arrays, with);
  EXPECT_TRUE(kernel.average.equal(before));
}

TEST(FlatBufferPieces, TileTheFlatBuffer) {
  int64_t done = 0;
  for (const FlatBufferPiece& piece : flat_buffer_pieces(kRanges, kSize)) {
    EXPECT_EQ(piece.offset, done);
    EXPECT_GT(piece.size, 0);
    EXPECT_LE(piece.size, kMostPieceElements);
    int group = -1;
    for (const devices::FlatBufferRange& range : kRanges) {
      if (piece.offset >= range.offset &&
          piece.offset < range.offset + range.size) {
        group = range.group;
        EXPECT_LE(piece.offset + piece.size, range.offset + range.size);
      }
    }
    EXPECT_EQ(piece.group, group);
    done += piece.size;
  }
  EXPECT_EQ(done, kSize);
  EXPECT_TRUE(flat_buffer_pieces({}, 0).empty());
}

TEST(FlatBufferPieces, RefusesRangesThatOverlap) {
  const std::vector<devices::FlatBufferRange> overlap = {{0, 10, 0}, {9, 2, 0}};
  const std::vector<devices::FlatBufferRange> beyond = {{0, 11, 0}};
  const std::vector<devices::FlatBufferRange> group = {{0, 10, 3}};
  for (const auto& ranges : {overlap, beyond, group}) {
    EXPECT_THROW(flat_buffer_pieces(ranges, 10), CheckFailure);
  }
}

}  // namespace
}  // namespace headroom::cuda
