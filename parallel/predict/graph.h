// Graph: what autograd holds between forward and backward, and the gradients
// on their way in backward, as far as memory goes.
//
// Nodes run in the reverse order of their making, as LibTorch's engine runs
// them. A node's saved buffers go when it has run, after that its gradients go
// to the nodes that made its inputs: the first as it is; a second one is added
// in place if nobody else holds the first, else into a new buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "parallel/predict/memory_timeline.h"

namespace headroom::predict {

// Brings a saved buffer back; called once.
using Unpack = std::function<Memory()>;

// What becomes of a saved buffer (parallel/activations/saved_tensor_policy.h).
class SavePolicy {
 public:
  virtual ~SavePolicy() = default;
  virtual Unpack pack(const Memory& memory) = 0;
};

struct Gradient {
  Memory memory;
  bool is_slice = false;  // part of a larger buffer: never worked on in place
};

class Graph {
 public:
  static constexpr int kNobody = -1;  // the maker of a map without gradient

  struct Outcome {
    std::vector<Gradient> inputs;    // one per input of the node
    std::vector<Memory> parameters;  // gradients; gone once they are added
  };
  // The saved buffers are there while it runs.
  using Backward = std::function<Outcome(Gradient)>;

  struct Node {
    int64_t layer = -1;
    int64_t output_bytes = 0;
    std::vector<int> inputs;  // nodes, or kNobody
    std::vector<Unpack> saved;
    Backward backward;
    bool has_parameters = false;
    Gradient gradient;
    bool is_root = false;  // runs without a gradient
  };

  explicit Graph(MemoryTimeline& timeline) : timeline_(timeline) {}
  // Returns the node's number.
  int add(Node node);
  Node& at(int node) { return nodes_[static_cast<size_t>(node)]; }

  // Nodes that have parameters, by layer.
  std::map<int64_t, int64_t> parameter_nodes() const;

  using OfLayer = std::function<void(int64_t layer)>;
  // `after_parameters` is called with the layer of each node that has
  // parameters, when their gradients are there; `before_layer`, unless null,
  // when the backward of a layer begins.
  void run_backward(const OfLayer& after_parameters,
                    const OfLayer& before_layer);

  MemoryTimeline& timeline() { return timeline_; }

 private:
  void run(Node& node, const OfLayer& after_parameters);
  void give(int to, Gradient gradient);

  MemoryTimeline& timeline_;
  std::vector<Node> nodes_;
};

// `gradient` in a dense buffer that nobody else holds: itself, or a new one.
Memory own(MemoryTimeline& timeline, Gradient& gradient, int64_t bytes);

}  // namespace headroom::predict
