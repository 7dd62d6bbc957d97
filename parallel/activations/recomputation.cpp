#include "parallel/activations/recomputation.h"

#include <c10/core/GradMode.h>

#include <memory>
#include <string>
#include <utility>

#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::activations {
namespace {

// Collects the tensors that the second pass saves, in order.
class Capture final : public SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    taken.push_back(keep(tensor));
    // Never called, because the graph of the second pass has no backward.
    return [] { return at::Tensor(); };
  }
  std::vector<KeptTensor> taken;
};

class Segment final : public SavedTensorPolicy,
                      public std::enable_shared_from_this<Segment> {
 public:
  explicit Segment(Recomputable piece) : piece_(std::move(piece)) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs,
                              const RecomputeOptions& options) {
    for (const at::Tensor& input : inputs) {
      inputs_.push_back(keep(input, options.inputs));
      learns_.push_back(input.requires_grad());
    }
    const SavedTensorPolicyGuard guard(this);
    std::vector<at::Tensor> outputs = piece_(inputs, Pass::kFirst);
    if (!options.output || num_packed_ == 0) return outputs;
    HEADROOM_CHECK(outputs.size() == 1, cat("a derivation for ", outputs.size(),
                                            " outputs of a piece"));
    set_derivation(
        outputs.front(), {},
        [self = shared_from_this()](const std::vector<at::Tensor>&) {
          return self->produce().front();
        },
        *options.output);
    return outputs;
  }

  std::function<at::Tensor()> pack(const at::Tensor&) override {
    return [self = shared_from_this(), index = num_packed_++] {
      return self->unpack(index);
    };
  }

 private:
  at::Tensor unpack(std::size_t index) {
    if (produced_.empty()) produce();
    return produced_[index].take();
  }

  // Runs the piece again. Returns its outputs, without their graph.
  std::vector<at::Tensor> produce() {
    HEADROOM_CHECK(produced_.empty(), "a piece is run again twice");
    Capture capture;
    std::vector<at::Tensor> outputs;
    {
      const SavedTensorPolicyGuard guard(&capture);
      const c10::AutoGradMode gradients(true);
      std::vector<at::Tensor> again;
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        again.push_back(inputs_[i].take().detach().requires_grad_(learns_[i]));
      }
      inputs_.clear();
      for (const at::Tensor& output : piece_(again, Pass::kAgain)) {
        outputs.push_back(output.detach());
      }
    }
    HEADROOM_CHECK(capture.taken.size() == num_packed_,
                   cat("a recomputed piece saved ", capture.taken.size(),
                       " tensors, the first pass ", num_packed_));
    produced_.swap(capture.taken);
    piece_ = nullptr;
    return outputs;
  }

  Recomputable piece_;
  std::vector<KeptTensor> inputs_;
  std::vector<bool> learns_;
  std::size_t num_packed_ = 0;
  std::vector<KeptTensor> produced_;
};

}  // namespace

std::vector<at::Tensor> recompute(Recomputable piece,
                                  const std::vector<at::Tensor>& inputs,
                                  const RecomputeOptions& options) {
  return std::make_shared<Segment>(std::move(piece))->run(inputs, options);
}

}  // namespace headroom::activations
