#include "parallel/activations/recomputation.h"

#include <c10/core/GradMode.h>

#include <memory>
#include <string>
#include <utility>

#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

// Takes what the second pass saves, in order.
class Capture final : public SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    taken.push_back(tensor.detach());
    return [] { return at::Tensor(); };  // nobody runs that graph's backward
  }
  std::vector<at::Tensor> taken;
};

class Segment final : public SavedTensorPolicy,
                      public std::enable_shared_from_this<Segment> {
 public:
  Segment(Recomputable piece, std::vector<at::Tensor> inputs)
      : piece_(std::move(piece)), inputs_(std::move(inputs)) {}

  std::vector<at::Tensor> run() {
    const SavedTensorPolicyGuard guard(this);
    return piece_(inputs_, Pass::kFirst);
  }

  std::function<at::Tensor()> pack(const at::Tensor&) override {
    return [self = shared_from_this(), index = num_packed_++] {
      return self->unpack(index);
    };
  }

 private:
  at::Tensor unpack(std::size_t index) {
    if (produced_.empty()) produce();
    return std::exchange(produced_[index], at::Tensor());
  }

  void produce() {
    Capture capture;
    {
      const SavedTensorPolicyGuard guard(&capture);
      const c10::AutoGradMode gradients(true);
      std::vector<at::Tensor> again;
      for (const at::Tensor& input : inputs_) {
        again.push_back(input.detach().requires_grad_(input.requires_grad()));
      }
      piece_(again, Pass::kAgain);
    }
    HEADROOM_CHECK(
        capture.taken.size() == num_packed_,
        "a recomputed piece saved " + std::to_string(capture.taken.size()) +
            " tensors, the first pass " + std::to_string(num_packed_));
    produced_ = std::move(capture.taken);
    inputs_.clear();
  }

  Recomputable piece_;
  std::vector<at::Tensor> inputs_;
  std::size_t num_packed_ = 0;
  std::vector<at::Tensor> produced_;
};

}  // namespace

std::vector<at::Tensor> recompute(Recomputable piece,
                                  const std::vector<at::Tensor>& inputs) {
  return std::make_shared<Segment>(std::move(piece), inputs)->run();
}

}  // namespace headroom
