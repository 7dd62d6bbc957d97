#include "parallel/predict/graph.h"

#include <utility>

namespace headroom::predict {

int Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

std::map<int64_t, int64_t> Graph::parameter_nodes() const {
  std::map<int64_t, int64_t> count;
  for (const Node& node : nodes_)
    if (node.has_parameters) ++count[node.layer];
  return count;
}

void Graph::run_backward(const OfLayer& after_parameters,
                         const OfLayer& before_layer) {
  int64_t layer = -1;
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    if (before_layer && node.layer != layer) before_layer(layer = node.layer);
    if (node.is_root || node.gradient.memory != nullptr) {
      run(node, after_parameters);
    }
  }
}

void Graph::run(Node& node, const OfLayer& after_parameters) {
  buffers_.set_layer(node.layer);
  Outcome outcome;
  {
    std::vector<Memory> saved;
    for (const Unpack& unpack : node.saved) saved.push_back(unpack());
    outcome = node.backward(std::move(node.gradient));
    node.gradient = {};
  }
  node.saved.clear();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    give(node.inputs[i], std::move(outcome.inputs[i]));
  }
  if (node.has_parameters) after_parameters(node.layer);
}

void Graph::give(int to, Gradient gradient) {
  if (to == kNobody || gradient.memory == nullptr) return;
  Gradient& there = at(to).gradient;
  if (there.memory == nullptr) {
    there = std::move(gradient);
  } else if (there.is_slice || there.memory.use_count() > 1) {
    there = {buffers_.allocate(at(to).output_bytes), false};
  }
}

Memory own(LiveBuffers& buffers, Gradient& gradient, int64_t bytes) {
  if (!gradient.is_slice && gradient.memory.use_count() == 1) {
    return std::move(gradient.memory);
  }
  return buffers.allocate(bytes);
}

}  // namespace headroom::predict
