// Graph: the buffers that autograd holds between forward and backward, and the
// gradients passed along in backward. Only memory is simulated.
//
// Nodes run in reverse order of creation, as in LibTorch's engine. After a node
// has run, its saved buffers are freed, then its gradients are passed to the
// nodes that made its inputs. A node's first gradient is stored as it is; a
// second one is added in place if nothing else holds the first, else into a new
// buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "parallel/predict/live_buffers.h"

namespace headroom::predict {

// Returns a saved buffer; called once.
using Unpack = std::function<Memory()>;

// How a saved buffer is kept (parallel/activations/saved_tensor_policy.h).
class SavePolicy {
 public:
  virtual ~SavePolicy() = default;
  virtual Unpack pack(const Memory& memory) = 0;
};

struct Gradient {
  Memory memory;
  bool is_slice = false;  // a view of a larger map: not changed in place
};

class Graph {
 public:
  static constexpr int kNobody = -1;  // node of a map without gradient

  struct Outcome {
    std::vector<Gradient> inputs;  // one gradient for each input of the node
    // gradients of the parameters; freed once they are added up
    std::vector<Memory> parameters;
  };
  // Computes gradients; the saved buffers exist while it runs.
  using Backward = std::function<Outcome(Gradient)>;

  struct Node {
    int64_t layer = -1;
    int64_t output_bytes = 0;
    std::vector<int> inputs;  // nodes that made the inputs, or kNobody
    std::vector<Unpack> saved;
    Backward backward;
    bool has_parameters = false;
    Gradient gradient;
    bool is_root = false;  // backward starts here, without a gradient
  };

  explicit Graph(LiveBuffers& buffers) : buffers_(buffers) {}
  int add(Node node);
  Node& at(int node) { return nodes_[static_cast<size_t>(node)]; }

  // The number of nodes with parameters, by layer.
  std::map<int64_t, int64_t> parameter_nodes() const;

  using OfLayer = std::function<void(int64_t layer)>;
  // Runs the backward of all nodes. Calls after_parameters(layer) for each node
  // with parameters, once their gradients exist. Calls before_layer(layer),
  // unless it is null, when the backward of a layer begins.
  void run_backward(const OfLayer& after_parameters,
                    const OfLayer& before_layer);

 private:
  void run(Node& node, const OfLayer& after_parameters);
  void give(int to, Gradient gradient);

  LiveBuffers& buffers_;
  std::vector<Node> nodes_;
};

// Returns `gradient` if it is dense and held by nothing else, else a new
// buffer.
Memory own(LiveBuffers& buffers, Gradient& gradient, int64_t bytes);

}  // namespace headroom::predict
