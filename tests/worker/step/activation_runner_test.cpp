// Tests how many bytes every policy keeps, and that no policy changes any bit
// of the results.
#include "worker/step/apply_plan.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "tests/support/plain_autograd.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {
namespace {

using enum plan::ActivationPolicy;
using Policies = std::vector<plan::ActivationPolicy>;

constexpr size_t kLayers = 25;

// Gives the layers these policies in turn.
ActivationRunner::Options every(const Policies& policies) {
  ActivationRunner::Options options;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    options.policies.push_back(policies[layer % policies.size()]);
  }
  return options;
}

struct Request {
  const char* model = "yolov5n";
  at::ScalarType type = at::kFloat;
  int64_t images = 4, height = 64, width = 96;
  int64_t num_classes = 3;
};

struct Result {
  std::vector<at::Tensor> gradients;
  at::Tensor batch_norm_sums;
  int64_t kept_bytes = 0;  // live after forward, without the model
  int64_t peak_bytes = 0;
  int64_t left_bytes = 0;  // live after backward
};

Result forward_and_backward(const Request& request,
                            model::LayerExecutor* runner) {
  activations::CountingAllocator::install();
  activations::CountingAllocator& memory =
      activations::CountingAllocator::instance();
  activations::install_saved_tensor_policies();
  at::manual_seed(3);
  model::LayerGraph model(layers::load_model_table(request.model),
                          request.num_classes, request.type, 0);
  for (const model::NamedTensor& entry : model.state()) {
    if (!entry.is_parameter()) continue;
    entry.tensor->requires_grad_();
    entry.tensor->mutable_grad() = at::zeros_like(*entry.tensor);
  }
  Result result;
  result.batch_norm_sums =
      at::zeros({model.batch_norm_sums_size()}, at::kDouble);
  model::StepContext context;
  context.training = true;
  const int64_t half = (request.images + 1) / 2;
  context.groups = {{0, half, half, true}};
  if (half < request.images)
    context.groups.push_back(
        {half, request.images, request.images - half, true});
  context.batch_norm_sums = result.batch_norm_sums;
  context.runner = runner;
  const int64_t before = memory.live_bytes();
  memory.reset_peak();
  {
    at::Tensor images =
        at::rand({request.images, 3, request.height, request.width},
                 at::TensorOptions(request.type))
            .contiguous(at::MemoryFormat::ChannelsLast);
    std::vector<at::Tensor> heads = model.forward(images, context);
    images.reset();
    result.kept_bytes = memory.live_bytes() - before;
    at::Tensor sum;
    for (const at::Tensor& head : heads) {
      const at::Tensor part = head.sigmoid().sum();
      sum = sum.defined() ? sum.add(part) : part;
    }
    heads.clear();
    sum.backward();
  }
  result.peak_bytes = memory.peak_bytes() - before;
  result.left_bytes = memory.live_bytes() - before;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.is_parameter()) result.gradients.push_back(entry.tensor->grad());
  }
  return result;
}

void expect_same(const Result& keep, const Result& other) {
  ASSERT_EQ(keep.gradients.size(), other.gradients.size());
  for (size_t i = 0; i < keep.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(keep.gradients[i], other.gradients[i])) << i;
  }
  EXPECT_TRUE(at::equal(keep.batch_norm_sums, other.batch_norm_sums))
      << "nothing is counted twice";
  EXPECT_EQ(other.left_bytes, keep.left_bytes) << "something was not released";
}

class Policy : public testing::TestWithParam<Policies> {};

TEST_P(Policy, IsBitIdenticalToKeep) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    Request request;
    request.type = type;
    ActivationRunner runner(every(GetParam()));
    const Result keep = forward_and_backward(request, nullptr);
    const Result less = forward_and_backward(request, &runner);
    expect_same(keep, less);
    EXPECT_LT(less.kept_bytes, keep.kept_bytes);
    EXPECT_LE(less.peak_bytes, keep.peak_bytes);
    if (runner.offload().file() != nullptr) {
      EXPECT_EQ(runner.offload().file()->used_bytes(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllLayers, Policy,
    testing::Values(Policies{kLean}, Policies{kRecompute}, Policies{kOffload},
                    // In these cases each policy follows each of the others.
                    Policies{kKeep, kLean, kRecompute, kOffload},
                    Policies{kOffload, kRecompute, kLean, kKeep},
                    Policies{kLean, kKeep}, Policies{kRecompute, kLean},
                    Policies{kLean, kOffload, kRecompute}));

TEST(ActivationRunner, LayersThatDoNotJoinAreIdenticalToo) {
  ActivationRunner::Options apart = every({kRecompute});
  apart.layers_join = false;
  ActivationRunner joined(every({kRecompute})), alone(apart);
  const Request request;
  const Result keep = forward_and_backward(request, nullptr);
  const Result together = forward_and_backward(request, &joined);
  const Result separate = forward_and_backward(request, &alone);
  expect_same(keep, together);
  expect_same(keep, separate);
  EXPECT_LT(together.kept_bytes, separate.kept_bytes);
}

TEST(ActivationRunner, WithoutGradientsLayersAreSimplyCalled) {
  activations::CountingAllocator::install();
  const at::NoGradGuard no_gradients;
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  ActivationRunner runner(every({kLean, kRecompute, kOffload}));
  model::StepContext context;
  const at::Tensor images = at::rand({1, 3, 64, 64});
  const auto plain = model.forward(images, context);
  context.runner = &runner;
  const auto same = model.forward(images, context);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(plain[i], same[i]));
  }
  EXPECT_EQ(runner.offload().file(), nullptr);
}

TEST(ActivationRunner, AFullOffloadFileIsRefusedWithTheNumbers) {
  ActivationRunner::Options options = every({kOffload});
  options.host_memory_limit = 1 << 20;
  ActivationRunner runner(options);
  try {
    forward_and_backward({}, &runner);
    FAIL() << "1 MiB is not enough";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--host-memory-limit is 1 MiB"),
              std::string::npos)
        << error.what();
  }
}

// If only the machine limits the memory, a rank does not offload tensors to a
// file, unless the user asked for offload.
TEST(ActivationRungs, HaveOffloadOnlyWhereTheRunMayOrThePlanDoes) {
  plan::Plan plan;
  const auto names = [&](bool may_offload) {
    return activation_rungs(plan, kLayers, /*host_memory_limit=*/0, may_offload)
        .names;
  };
  EXPECT_EQ(names(true).back(), "layers are offloaded");
  EXPECT_EQ(names(false).back(), "layers are recomputed");
  const ActivationRungs rungs = activation_rungs(plan, kLayers, 0, false);
  ASSERT_EQ(rungs.skipped.size(), 1u);
  EXPECT_EQ(rungs.skipped[0],
            "offload is skipped: the limit is the machine's, and --activations "
            "offload is not given");
  plan.activation_policies.assign(kLayers, kKeep);
  plan.activation_policies[0] = kOffload;
  EXPECT_EQ(names(false).back(), "layers are offloaded");
}

// The ratios do not depend on the size of the images.
TEST(ActivationRunner, BytesAgainstPlainAutograd) {
  Request request;
  request.model = "yolov5s";
  request.num_classes = 80;
  request.images = 1;
  request.height = request.width = 320;
  const auto plain = static_cast<double>(plain_autograd_bytes(
      layers::load_model_table(request.model), request.num_classes,
      request.images, request.height, request.width, at::kFloat));
  std::printf("yolov5s, %ld px: plain autograd keeps %.1f MiB\n",
              static_cast<long>(request.height), plain / (1 << 20));
  const auto ratio = [&](const char* name, model::LayerExecutor* runner) {
    const Result result = forward_and_backward(request, runner);
    const double kept = static_cast<double>(result.kept_bytes) / plain;
    std::printf(
        "| %-9s | kept %.3f of it | peak of forward and backward %.3f\n", name,
        kept, static_cast<double>(result.peak_bytes) / plain);
    return kept;
  };
  ActivationRunner lean(every({kLean})), recompute(every({kRecompute})),
      offload(every({kOffload}));
  const double keep_ratio = ratio("keep", nullptr);
  const double lean_ratio = ratio("lean", &lean);
  const double recompute_ratio = ratio("recompute", &recompute);
  const double offload_ratio = ratio("offload", &offload);
  EXPECT_LE(keep_ratio, 0.71);
  EXPECT_LE(lean_ratio, 0.36);
  EXPECT_LE(recompute_ratio, 0.20);
  EXPECT_LE(offload_ratio, 0.05);
}

}  // namespace
}  // namespace headroom::step
