// The inputs of a layer's simulated operators: map sizes, the buffers, the
// graph, and the layer's activation policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/base/convolution_workspaces.h"
#include "parallel/machine/processor.h"
#include "parallel/predict/graph.h"
#include "parallel/predict/live_buffers.h"

namespace headroom::predict {

// Recomputation of maps in backward: the rules of
// parallel/activations/derivation.h, applied to simulated buffers. A Kept holds
// a buffer that will be read once: the buffer itself, or its derivation.
class Kept {
 public:
  explicit Kept(Memory memory) : memory_(std::move(memory)) {}
  explicit Kept(std::shared_ptr<Derivation> derivation);
  Kept(Kept&&) = default;
  Kept& operator=(Kept&&) = delete;
  ~Kept();

  // Returns the buffer. REQUIRES: called once.
  Memory take();

 private:
  Memory memory_;
  std::shared_ptr<Derivation> derivation_;  // null if the buffer is held
};

enum class Cost { kElementwise, kConvolution };

using MakeAgain = std::function<Memory(const std::vector<Memory>& sources)>;

// Lets `map` be recomputed from `sources`. REQUIRES: it has no derivation.
void set_derivation(const Memory& map, const std::vector<Memory>& sources,
                    MakeAgain make, Cost cost = Cost::kElementwise);

// Keeps the derivation if there is one of at most this cost, else the buffer.
Kept keep(const Memory& memory, Cost most = Cost::kElementwise);

constexpr int64_t kDoubleBytes = 8;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kIndexBytes = 8;

// One micro-batch on one rank.
struct MicroBatchShape {
  int64_t samples = 1;
  int64_t groups = 1;        // batch-norm groups with samples in it
  int64_t image_height = 0;  // rows of pixels on this rank
  int64_t image_width = 0;
  // Neighbouring image parts (0, 1 or 2) from which rows are fetched.
  int64_t neighbours = 0;
  int64_t element_bytes = 4;  // of a map; parameters have 4 or more
  int64_t num_threads = 1;    // threads that run an operator
  // Whether 16-bit maps are convolved as float32
  bool convolves_in_float = false;
  OnednnIsa onednn_isa = OnednnIsa::kAvx512;  // parallel/machine/processor.h
  // On a card there is no oneDNN scratch, and the loss uses other buffers.
  bool on_device = false;
  // Whether a block adds its gradients to the stored gradients itself
  bool adds_gradients = false;
  // Not owned: observed workspaces of the card's library; null if none are
  // known.
  const ConvolutionWorkspaces* workspaces = nullptr;

  bool is_mixed() const { return element_bytes == 2; }
  // Bytes per element of parameters, heads and all values that the loss
  // computes.
  int64_t parameter_bytes() const { return is_mixed() ? 4 : element_bytes; }
  // This shape with maps in the parameters' type.
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
  int64_t rows_bytes(int64_t rows, int64_t channels, int64_t stride) const {
    return samples * rows * (image_width / stride) * channels * element_bytes;
  }
};

// A map, and the graph node that made it.
struct Map {
  Memory memory;
  int64_t channels = 0;
  int64_t stride = 1;  // pixels per cell
  int node = Graph::kNobody;

  bool wants_gradient() const { return node != Graph::kNobody; }
  Map without_memory() const { return {nullptr, channels, stride, node}; }
};

// Records data received from other ranks while a layer ran, so that a recompute
// reuses it (worker/model/replay_log.h).
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

// kNoted: maps get derivations. kLean: pieces of a layer are also recomputed.
enum class Derive { kNothing, kNoted, kLean };

struct OpContext {
  const MicroBatchShape& shape;
  LiveBuffers& buffers;
  Graph& graph;
  int64_t layer = 0;
  SavePolicy* policy = nullptr;  // null if saved buffers are simply held
  Derive derive = Derive::kNothing;
  Replay* replay = nullptr;  // null if the layer is not recomputed
  bool learns = true;        // whether parameters get gradients
  // Whether weights are cast to the maps' type for each use.
  bool casts_weights = false;

  Memory allocate_map(int64_t channels, int64_t stride) const {
    return buffers.allocate(shape.map_bytes(channels, stride));
  }
  int64_t bytes_of(const Map& map) const {
    return shape.map_bytes(map.channels, map.stride);
  }
  // The context for an operation's backward, where nothing is replayed.
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
  // Whether autograd records an operation on these maps.
  bool is_recorded(const std::vector<Map>& inputs, bool has_parameters) const {
    return (has_parameters && learns) ||
           std::ranges::any_of(inputs, &Map::wants_gradient);
  }
  // Adds the node of a new map. Returns its number, or kNobody if autograd
  // records nothing.
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
