#include "parallel/predict/step.h"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/plan/plan_parts.h"

namespace headroom::predict {
namespace {

// The peer that sends or receives a map or its gradient.
struct End {
  int peer = 0;
  size_t map = 0;  // index into received() or sent() of this stage
};

class Run {
 public:
  Run(const StepRequest& request, CachingAllocator* device)
      : request_(request),
        num_stages_(static_cast<int>(request.stage_begins.size())),
        num_micro_batches_(static_cast<int64_t>(request.micro_batches.size())),
        buffers_(device) {
    HEADROOM_CHECK(request.micro_batches.size() == request.losses.size(),
                   "a loss for each micro-batch");
    for (int stage = 0; stage < num_stages_; ++stage) {
      lists_.push_back(
          stage_instructions(stage, num_stages_, num_micro_batches_));
    }
    const std::vector<int> received = request.stage.received();
    for (size_t i = 0; i < received.size(); ++i)
      sources_.push_back({stage_of(received[i]), i});
    const std::vector<int> sent = request.stage.sent();
    for (size_t i = 0; i < sent.size(); ++i)
      for (int stage = request.index + 1; stage < num_stages_; ++stage)
        if (reads(stage, sent[i])) readers_.push_back({stage, i});
    posted_.resize(list().size());
  }

  StepMemory run() {
    for (; current_ < list().size(); ++current_) {
      post(current_);
      if (list()[current_].is_forward)
        forward();
      else
        backward();
    }
    memory_.peak_bytes = buffers_.peak_bytes();
    return memory_;
  }
  bool fits() const { return buffers_.fits(); }

  std::vector<PartMemory> parts() {
    records_parts_ = true;
    run();
    end_part();
    return std::move(parts_);
  }

 private:
  struct Sending {
    int peer = 0;
    int64_t peer_instruction = 0;
    Memory memory;
  };

  const std::vector<StepInstruction>& list() const {
    return lists_[static_cast<size_t>(request_.index)];
  }
  int stage_of(int layer) const {
    const auto next = std::ranges::upper_bound(request_.stage_begins, layer);
    return static_cast<int>(next - request_.stage_begins.begin()) - 1;
  }
  bool reads(int stage, int layer) const {
    const auto [begin, end] =
        plan::layers_of_stage(request_.stage_begins, static_cast<size_t>(stage),
                              request_.stage.layers.size());
    for (int64_t i = begin; i < end; ++i)
      if (std::ranges::count(
              request_.stage.layers[static_cast<size_t>(i)].inputs, layer) > 0)
        return true;
    return false;
  }
  int64_t position_at(int peer, const StepInstruction& instruction) const {
    const auto& peers = lists_[static_cast<size_t>(peer)];
    return std::ranges::find(peers, instruction) - peers.begin();
  }
  int64_t bytes_of(int layer, int64_t micro_batch) const {
    const layers::LayerCost& from =
        request_.stage.layers[static_cast<size_t>(layer)];
    return request_.micro_batches[static_cast<size_t>(micro_batch)].map_bytes(
        from.channels, from.stride);
  }

  // Counts the following allocations for this part.
  void begin_part(StepPart part, int64_t layer) {
    if (!records_parts_) return;
    end_part();
    parts_.push_back({part, layer});
  }
  void end_part() {
    if (!parts_.empty()) {
      PartMemory& part = parts_.back();
      part.kept_bytes = buffers_.live_bytes();
      part.scratch_bytes = buffers_.peak_bytes() - part.kept_bytes;
    }
    buffers_.reset_peak();
  }
  void record_layers(MicroBatch& micro_batch, StepPart part) {
    if (!records_parts_) return;
    micro_batch.before_layer = [this, part](int64_t layer) {
      begin_part(part, layer);
    };
    micro_batch.before_loss = [this] {
      begin_part(StepPart::kLoss, request_.stage.end - 1);
    };
  }

  // Allocates the receive buffers of an instruction: maps of earlier stages, or
  // gradients from the stages that read this stage's maps.
  void post(size_t index) {
    if (index >= list().size() || posted_[index].has_value()) return;
    const StepInstruction& instruction = list()[index];
    std::deque<Memory> messages;
    const std::vector<int> layers = instruction.is_forward
                                        ? request_.stage.received()
                                        : request_.stage.sent();
    for (const End& end : instruction.is_forward ? sources_ : readers_)
      messages.push_back(buffers_.allocate(
          bytes_of(layers[end.map], instruction.micro_batch)));
    posted_[index] = std::move(messages);
  }
  Memory take(const End& from) {
    const int64_t there = position_at(from.peer, list()[current_]);
    sending_.remove_if([&](const Sending& sending) {
      return sending.peer == from.peer && sending.peer_instruction <= there + 1;
    });
    std::deque<Memory>& messages = *posted_[current_];
    Memory first = std::move(messages.front());
    messages.pop_front();
    return first;
  }
  void send(const End& to, const Memory& memory) {
    sending_.push_back(
        {to.peer, position_at(to.peer, list()[current_]), memory});
  }

  void forward() {
    begin_part(StepPart::kForward, -1);
    std::vector<Memory> received;
    for (const End& source : sources_) received.push_back(take(source));
    post(current_ + 1);
    const int64_t number = list()[current_].micro_batch;
    const auto at = static_cast<size_t>(number);
    auto micro_batch = std::make_unique<MicroBatch>(buffers_, request_.stage,
                                                    request_.micro_batches[at],
                                                    request_.losses[at]);
    record_layers(*micro_batch, StepPart::kForward);
    const std::vector<Memory> sent = micro_batch->forward(std::move(received));
    for (const End& reader : readers_) send(reader, sent[reader.map]);
    in_flight_[number] = std::move(micro_batch);
    if (memory_.kept_bytes == 0) memory_.kept_bytes = buffers_.live_bytes();
  }

  void backward() {
    begin_part(StepPart::kBackward, -1);
    const int64_t number = list()[current_].micro_batch;
    const std::unique_ptr<MicroBatch> micro_batch =
        std::move(in_flight_.at(number));
    in_flight_.erase(number);
    // Gradients of several readers are summed into the first one's buffer.
    std::vector<Memory> gradients(request_.stage.sent().size());
    for (const End& reader : readers_) {
      Memory taken = take(reader);
      if (gradients[reader.map] == nullptr)
        gradients[reader.map] = std::move(taken);
    }
    post(current_ + 1);
    record_layers(*micro_batch, StepPart::kBackward);
    const std::vector<Memory> sent =
        micro_batch->backward(std::move(gradients));
    for (const End& source : sources_) send(source, sent[source.map]);
  }

  const StepRequest& request_;
  const int num_stages_;
  const int64_t num_micro_batches_;
  std::vector<std::vector<StepInstruction>> lists_;
  std::vector<End> sources_, readers_;
  LiveBuffers buffers_;
  size_t current_ = 0;
  std::vector<std::optional<std::deque<Memory>>> posted_;
  std::list<Sending> sending_;
  std::map<int64_t, std::unique_ptr<MicroBatch>> in_flight_;
  StepMemory memory_;
  bool records_parts_ = false;
  std::vector<PartMemory> parts_;
};

}  // namespace

std::vector<StepInstruction> stage_instructions(int stage, int num_stages,
                                                int64_t num_micro_batches) {
  std::vector<StepInstruction> result;
  const int64_t ahead =
      std::min<int64_t>(num_stages - 1 - stage, num_micro_batches);
  for (int64_t i = 0; i < num_micro_batches + ahead; ++i) {
    if (i < num_micro_batches) result.push_back({true, i});
    if (i >= ahead) result.push_back({false, i - ahead});
  }
  return result;
}

StepMemory step_memory(const StepRequest& request) {
  return Run(request, nullptr).run();
}

std::vector<PartMemory> step_parts(const StepRequest& request) {
  return Run(request, nullptr).parts();
}

bool replay_step(const StepRequest& request, CachingAllocator& allocator) {
  Run step(request, &allocator);
  step.run();
  return step.fits();
}

int64_t captured_step_bytes(const SimulatedStage& stage,
                            const MicroBatchShape& shape,
                            const LossShape& loss) {
  LiveBuffers buffers;
  MicroBatch micro_batch(buffers, stage, shape, loss);
  micro_batch.has_graph_inputs = true;
  micro_batch.forward({});
  micro_batch.backward({});
  return buffers.peak_bytes();
}

}  // namespace headroom::predict
