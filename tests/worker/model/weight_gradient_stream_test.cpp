// A weight's gradient on a second stream of the test device: who waits for it,
// what it holds, and what a graph's capture refuses. Training with it is tested
// in tests/worker/step/device_training_test.cpp.
#include "worker/model/weight_gradient_stream.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "parallel/pipeline/executor.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_api.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom::model {
namespace {

struct InBackward : torch::autograd::Function<InBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            const std::function<void()>* call) {
    context->saved_data["call"] =
        reinterpret_cast<int64_t>(static_cast<const void*>(call));
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    (*reinterpret_cast<const std::function<void()>*>(
        context->saved_data["call"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

class WeightGradients : public testing::Test {
 protected:
  WeightGradients() : beside_(device_.device()) {
    const at::TensorOptions options = device_.options(at::kFloat);
    parameter_ = at::zeros({kSize}, options).requires_grad_();
    parameter_.mutable_grad() = at::zeros({kSize}, options);
  }

  // Runs `call` in a backward.
  void in_backward(const std::function<void()>& call) const {
    const pipeline::BackwardOnThisThread here(/*is_cpu=*/false);
    const at::Tensor x = at::ones({}, device_.options(at::kFloat));
    InBackward::apply(x.requires_grad_(), &call).backward();
  }
  // The gradient is made of ones, once the gate is open.
  void run(std::shared_future<void> gate = {}) {
    at::Tensor ones = at::ones({kSize}, device_.options(at::kFloat));
    const at::Tensor source = ones;
    beside_.run({std::move(ones)}, [&] {
      if (gate.valid()) {
        TestStreams::instance().give(
            TestStreams::instance().current(device_.device()),
            [gate] { gate.wait(); });
      }
      parameter_.grad().add_(source);
    });
  }
  float gradient() const { return parameter_.grad()[0].cpu().item<float>(); }

  static constexpr int64_t kSize = 1000;
  const devices::ComputeDevice device_ = test_compute_device();
  WeightGradientStream beside_;
  at::Tensor parameter_;
};

// The first value shows that a read without a join is seen to be wrong.
TEST_F(WeightGradients, TheCurrentStreamWaitsInJoin) {
  std::promise<void> gate;
  float early = -1, late = -1;
  in_backward([&] {
    run(gate.get_future().share());
    early = gradient();
    gate.set_value();
    beside_.join();
    late = gradient();
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 1);
}

TEST_F(WeightGradients, TheEndOfBackwardJoinsTheLastOne) {
  for (int times = 1; times <= 3; ++times) {
    in_backward([&] { run(); });
    EXPECT_EQ(gradient(), times);
  }
}

TEST_F(WeightGradients, InputsAreHeldUntilJoin) {
  activations::MemoryMeter& memory = device_.memory();
  in_backward([&] {
    const int64_t before = memory.live_bytes();
    run();
    EXPECT_EQ(memory.live_bytes() - before,
              kSize * static_cast<int64_t>(sizeof(float)));
    beside_.join();
    EXPECT_EQ(memory.live_bytes(), before);
  });
}

TEST_F(WeightGradients, AFailedBackwardIsForgotten) {
  EXPECT_ANY_THROW(in_backward([&] {
    run();
    TORCH_CHECK(false, "out of memory");
  }));
  beside_.abandon();
  in_backward([&] { run(); });
  EXPECT_EQ(gradient(), 2);
}

class InAGraph : public WeightGradients {
 protected:
  InAGraph() {
    device_.api()->leave_default_stream(device_.device().index());
    graph_ = device_.api()->make_graph(device_.device().index());
  }
  ~InAGraph() override {
    graph_->abandon_capture();
    beside_.abandon();
  }
  static std::string refusal_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }
  std::unique_ptr<devices::DeviceGraph> graph_;
};

TEST_F(InAGraph, BothStreamsAreCapturedAndReplayed) {
  graph_->begin_capture(nullptr);
  in_backward([&] { run(); });
  graph_->end_capture();
  EXPECT_EQ(gradient(), 0);
  graph_->replay();
  EXPECT_EQ(gradient(), 1);
}

// As CUDA refuses them.
TEST_F(InAGraph, AMissingJoinEndsTheCapture) {
  graph_->begin_capture(nullptr);
  EXPECT_ANY_THROW(in_backward([&] {
    run();
    TORCH_CHECK(false, "without its end");
  }));
  const std::string error = refusal_of([&] { graph_->end_capture(); });
  EXPECT_NE(error.find("unjoined work"), std::string::npos) << error;
}

TEST_F(InAGraph, AMissingForkIsNoPartOfTheCapture) {
  graph_->begin_capture(nullptr);
  const c10::StreamGuard elsewhere(
      TestStreams::instance().make(device_.device()));
  const std::string error =
      refusal_of([&] { parameter_.grad().add_(parameter_.grad()); });
  EXPECT_NE(error.find("takes no part"), std::string::npos) << error;
}

}  // namespace
}  // namespace headroom::model
