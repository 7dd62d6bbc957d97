// What the operators of a layer need to know while they are simulated: the
// sizes of maps, the timeline, the graph, and the layer's policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/processor.h"
#include "parallel/predict/graph.h"
#include "parallel/predict/memory_timeline.h"

namespace headroom::predict {

// Maps that are made again when backward needs them: the rules of
// parallel/activations/derivation.h, on buffers.

// A buffer that will be wanted once: itself, or a use of its derivation.
class Kept {
 public:
  explicit Kept(Memory memory) : memory_(std::move(memory)) {}
  explicit Kept(std::shared_ptr<Derivation> derivation);
  Kept(Kept&&) = default;
  Kept& operator=(Kept&&) = delete;
  ~Kept();

  // REQUIRES: the first call.
  Memory take();

 private:
  Memory memory_;
  std::shared_ptr<Derivation> derivation_;  // null: the buffer itself
};

enum class Cost { kElementwise, kConvolution };

using MakeAgain = std::function<Memory(const std::vector<Memory>& sources)>;

// REQUIRES: `map` has no derivation yet.
void set_derivation(const Memory& map, const std::vector<Memory>& sources,
                    MakeAgain make, Cost cost = Cost::kElementwise);

// A use of its derivation where it has one of at most this cost, else itself.
Kept keep(const Memory& memory, Cost most = Cost::kElementwise);

constexpr int64_t kDoubleBytes = 8;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kIndexBytes = 8;

// One micro-batch on one rank.
struct MicroBatchShape {
  int64_t samples = 1;
  int64_t groups = 1;        // batch-norm groups that it takes part in
  int64_t image_height = 0;  // rows of pixels that are here
  int64_t image_width = 0;
  // Image parts above and below whose rows are fetched: 0, 1 or 2.
  int64_t neighbours = 0;
  int64_t element_bytes = 4;  // a map's; 2: parameters are float32
  int64_t num_threads = 1;    // an operator's threads
  // Maps of 16 bits are convolved as float32
  // (worker/kernels/cpu/convolution.h).
  bool convolves_in_float = false;
  OnednnIsa onednn_isa = OnednnIsa::kAvx512;  // parallel/base/processor.h
  // Whether it runs on a card, without oneDNN's scratch and with its own loss.
  bool on_device = false;
  // Whether a block adds its gradients to its parameters' itself
  // (worker/model/step_context.h).
  bool adds_gradients = false;
  // Borrowed: what the card's library takes, as far as it was observed; null
  // where nothing is known.
  const ConvolutionWorkspaces* workspaces = nullptr;

  bool is_mixed() const { return element_bytes == 2; }
  // Bytes of an element of parameters, of heads, and of all that the loss makes
  // of them.
  int64_t parameter_bytes() const { return is_mixed() ? 4 : element_bytes; }
  // The same shape in the parameters' type.
  MicroBatchShape widened() const {
    MicroBatchShape result = *this;
    result.element_bytes = parameter_bytes();
    result.convolves_in_float = false;
    return result;
  }

  bool is_split() const { return neighbours > 0; }
  int64_t cells(int64_t stride) const {
    return samples * (image_height / stride) * (image_width / stride);
  }
  int64_t map_bytes(int64_t channels, int64_t stride) const {
    return cells(stride) * channels * element_bytes;
  }
  // Bytes of `rows` rows of the map.
  int64_t rows_bytes(int64_t rows, int64_t channels, int64_t stride) const {
    return samples * rows * (image_width / stride) * channels * element_bytes;
  }
};

// A map, and who made it.
struct Map {
  Memory memory;
  int64_t channels = 0;
  int64_t stride = 1;  // pixels per cell
  int node = Graph::kNobody;

  bool wants_gradient() const { return node != Graph::kNobody; }
  Map without_memory() const { return {nullptr, channels, stride, node}; }
};

// What came from other ranks while a layer ran, for running it again
// (worker/model/replay_log.h).
class Replay {
 public:
  template <typename Produce>
  Memory once(const Produce& produce) {
    if (!replaying_) {
      recorded_.push_back(produce());
      return recorded_.back();
    }
    return recorded_.at(next_++);
  }
  void start() {
    replaying_ = true;
    next_ = 0;
  }

 private:
  std::vector<Memory> recorded_;
  size_t next_ = 0;
  bool replaying_ = false;
};

// Whether maps are given derivations (noted), and pieces are run as recomputed
// too (lean).
enum class Derive { kNothing, kNoted, kLean };

struct OpContext {
  const MicroBatchShape& shape;
  MemoryTimeline& timeline;
  Graph& graph;
  int64_t layer = 0;
  SavePolicy* policy = nullptr;  // null: what is saved is held
  Derive derive = Derive::kNothing;
  Replay* replay = nullptr;  // null: the layer runs once
  bool learns = true;        // the layer's parameters want gradients
  // No copy of the weights in the maps' type lies ready: it is made in place.
  bool casts_weights = false;

  Memory allocate_map(int64_t channels, int64_t stride) const {
    return timeline.allocate(shape.map_bytes(channels, stride));
  }
  int64_t bytes_of(const Map& map) const {
    return shape.map_bytes(map.channels, map.stride);
  }
  // As an operation's backward sees it: nothing is replayed there.
  OpContext in_backward() const {
    OpContext result = *this;
    result.replay = nullptr;
    return result;
  }
  std::vector<Unpack> pack(const std::vector<Memory>& saved) const {
    std::vector<Unpack> result;
    for (const Memory& memory : saved) {
      if (policy != nullptr) {
        result.push_back(policy->pack(memory));
      } else {
        result.push_back([memory] { return memory; });
      }
    }
    return result;
  }
  // Does autograd record an operation on these maps?
  bool is_recorded(const std::vector<Map>& inputs, bool has_parameters) const {
    return (has_parameters && learns) ||
           std::ranges::any_of(inputs, &Map::wants_gradient);
  }
  // Adds the node that made a map. Returns its number, or kNobody where
  // autograd records nothing.
  int add(const std::vector<Map>& inputs, const std::vector<Memory>& saved,
          int64_t output_bytes, bool has_parameters,
          Graph::Backward backward) const {
    if (!is_recorded(inputs, has_parameters)) return Graph::kNobody;
    Graph::Node node;
    node.layer = layer;
    node.output_bytes = output_bytes;
    for (const Map& input : inputs) node.inputs.push_back(input.node);
    node.saved = pack(saved);
    node.has_parameters = has_parameters;
    node.backward = std::move(backward);
    return graph.add(std::move(node));
  }
};

}  // namespace headroom::predict
