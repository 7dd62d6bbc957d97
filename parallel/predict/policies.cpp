#include "parallel/predict/policies.h"

#include <memory>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::predict {
namespace {

// Must equal the limit in parallel/activations/offload_policy.cpp.
constexpr int64_t kTooSmallToMatter = 4096;

// Collects the buffers saved by the second run.
class Capture final : public SavePolicy {
 public:
  Unpack pack(const Memory& memory) override {
    taken.push_back(keep(memory));
    return [] { return Memory(); };
  }
  std::vector<Kept> taken;
};

class Segment final : public SavePolicy,
                      public std::enable_shared_from_this<Segment> {
 public:
  Segment(const OpContext& context, Piece piece)
      : pass_(context),
        piece_(std::move(piece)),
        replay_(std::make_unique<Replay>()) {
    pass_.policy = nullptr;
    pass_.replay = replay_.get();
  }

  std::vector<Map> run(const std::vector<Map>& inputs,
                       const RecomputeOptions& options) {
    for (const Map& input : inputs) {
      inputs_.push_back(keep(input.memory, options.inputs));
      places_.push_back(input.without_memory());
    }
    OpContext first = pass_;
    first.policy = this;
    first.derive = Derive::kNothing;
    std::vector<Map> outputs = piece_(first, inputs);
    if (!options.output || num_packed_ == 0) return outputs;
    set_derivation(
        outputs.front().memory, {},
        [self = shared_from_this()](const std::vector<Memory>&) {
          return self->produce().front();
        },
        *options.output);
    return outputs;
  }

  Unpack pack(const Memory&) override {
    return [self = shared_from_this(), index = num_packed_++] {
      if (self->produced_.empty()) self->produce();
      return self->produced_.at(index).take();
    };
  }

 private:
  std::vector<Memory> produce() {
    HEADROOM_CHECK(piece_ != nullptr, "a piece is run again twice");
    Capture capture;
    std::vector<Memory> outputs;
    {
      Graph nobodys(pass_.buffers);
      OpContext again = {pass_.shape,   pass_.buffers, nobodys,
                         pass_.layer,   &capture,      Derive::kNoted,
                         replay_.get(), pass_.learns};
      replay_->start();
      std::vector<Map> inputs = places_;
      for (size_t i = 0; i < inputs.size(); ++i)
        inputs[i].memory = inputs_[i].take();
      inputs_.clear();
      for (const Map& output : piece_(again, std::move(inputs)))
        outputs.push_back(output.memory);
    }
    HEADROOM_CHECK(capture.taken.size() == num_packed_,
                   "a piece saves something else when it is run again");
    produced_.swap(capture.taken);
    piece_ = nullptr;
    replay_.reset();
    return outputs;
  }

  OpContext pass_;
  Piece piece_;
  std::unique_ptr<Replay> replay_;
  std::vector<Kept> inputs_;
  std::vector<Map> places_;  // the input maps, without their buffers
  size_t num_packed_ = 0;
  std::vector<Kept> produced_;
};

}  // namespace

Unpack SimulatedLean::pack(const Memory& memory) {
  const auto kept = std::make_shared<Kept>(keep(memory));
  return [kept] { return kept->take(); };
}

Unpack SimulatedOffload::pack(const Memory& memory) {
  const int64_t bytes = memory->bytes;
  if (bytes < kTooSmallToMatter) return [memory] { return memory; };
  return [this, bytes] { return buffers_.allocate(bytes); };
}

std::vector<Map> recompute(const OpContext& context, Piece piece,
                           const std::vector<Map>& inputs,
                           const RecomputeOptions& options) {
  return std::make_shared<Segment>(context, std::move(piece))
      ->run(inputs, options);
}

}  // namespace headroom::predict
