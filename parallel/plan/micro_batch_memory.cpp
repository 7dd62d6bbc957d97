#include "parallel/plan/micro_batch_memory.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/plan/memory_tape.h"

namespace headroom {
namespace {

using Buffer = MemoryTape::Buffer;
constexpr Buffer kNone = MemoryTape::kNone;
constexpr int64_t kPoolings = 3;
constexpr int64_t kPoolReach = 2;  // rows on either side of a pooling
constexpr int64_t kIndexBytes = 8;
constexpr int64_t kDoubleBytes = 8;
constexpr int64_t kAnchors = 3;
constexpr int64_t kImages = -1;

// A map while it is computed, with the gradient that backward collects.
struct Value {
  Buffer buffer = kNone;
  int64_t channels = 0;
  int64_t stride = 1;
  bool wants_gradient = true;
  Buffer gradient = kNone;
  bool gradient_is_slice = false;  // of a larger buffer
};

struct Node {
  enum class Kind { kBlock, kAdd, kConcat, kUpsample, kPool, kHead, kLoss };
  Kind kind = Kind::kBlock;
  size_t row = 0;
  std::vector<int> inputs;
  int output = 0;
  int64_t weight_bytes = 0;
  int64_t kernel = 1;
  int64_t cells = 0;  // of a level: the loss's objectness map
  int64_t matches = 0;
  std::vector<Buffer> saved;
};

class Walk {
 public:
  explicit Walk(const MicroBatchRequest& request)
      : request_(request),
        first_node_(request.rows.size(), 0),
        row_values_(request.rows.size(), kNone),
        row_gradients_(request.rows.size(), kNone),
        row_inputs_(request.rows.size()),
        is_produced_(request.rows.size(), false) {}

  MicroBatchMemory run() {
    MicroBatchMemory memory;
    forward(memory);
    memory.kept_bytes = tape_.live_bytes();
    memory.forward_peak_bytes = tape_.peak_bytes();
    backward();
    memory.peak_bytes = tape_.peak_bytes();
    return memory;
  }

 private:
  // --- sizes ---------------------------------------------------------------
  int64_t cells(int64_t stride) const {
    return request_.samples * (request_.image_height / stride) *
           (request_.image_width / stride);
  }
  int64_t element() const { return request_.element_bytes; }
  int64_t bytes_of(const Value& value) const {
    return cells(value.stride) * value.channels * element();
  }
  // With `reach` rows more on either side.
  int64_t bytes_with_halo(const Value& value, int64_t reach) const {
    return bytes_of(value) + request_.samples * 2 * reach *
                                 (request_.image_width / value.stride) *
                                 value.channels * element();
  }
  int64_t row_parameter_bytes(size_t row) const {
    return request_.rows[row].parameters * element();
  }
  bool recomputes(size_t row) const {
    return !request_.policies.empty() &&
           request_.policies[row] == ActivationPolicy::kRecompute;
  }

  // --- forward -------------------------------------------------------------
  int make_value(int64_t channels, int64_t stride) {
    Value value;
    value.channels = channels;
    value.stride = stride;
    value.buffer = tape_.allocate(cells(stride) * channels * element());
    values_.push_back(value);
    return static_cast<int>(values_.size()) - 1;
  }
  Value& at(int value) { return values_[static_cast<size_t>(value)]; }
  void drop(int value) {
    tape_.release(std::exchange(at(value).buffer, kNone));
  }

  // `saved` are kept for the backward of the operator; while a row is run to
  // be run again nothing is, and then it belongs to the node of the first run.
  void record(Node node, const std::vector<Buffer>& saved) {
    if (replay_) {
      Node& earlier = nodes_[next_replayed_++];
      for (const Buffer buffer : saved) tape_.retain(buffer);
      earlier.saved = saved;
      return;
    }
    node.row = row_;
    if (!recomputes(row_) || node.kind == Node::Kind::kLoss) {
      for (const Buffer buffer : saved) tape_.retain(buffer);
      node.saved = saved;
    } else if (!saved.empty()) {
      row_saves_ = true;
    }
    nodes_.push_back(std::move(node));
  }

  // A row's operator on values; when run again the outputs are values nobody
  // reads, but the graph keeps the numbers of the first run.
  int block(int x, int64_t channels, int64_t kernel, int64_t stride) {
    const Value input = at(x);
    Node node;
    node.kind = Node::Kind::kBlock;
    node.inputs = {x};
    node.kernel = kernel;
    node.weight_bytes = kernel * kernel * input.channels * channels * element();
    Buffer joined = kNone;
    if (has_halo(kernel)) joined = tape_.allocate(bytes_with_halo(input, 1));
    const int y = make_value(channels, input.stride * stride);
    tape_.touch(node.weight_bytes);
    tape_.release(joined);
    const Buffer statistics =
        tape_.allocate(2 * request_.groups * channels * kDoubleBytes);
    const int out = make_value(channels, input.stride * stride);
    node.output = out;
    std::vector<Buffer> saved = {input.buffer, at(y).buffer, statistics};
    Buffer halo = kNone;
    if (has_halo(kernel)) {
      halo = tape_.allocate(bytes_with_halo(input, 1) - bytes_of(input));
      saved.push_back(halo);
    }
    record(node, saved);
    tape_.release(halo);
    tape_.release(statistics);
    drop(y);
    return out;
  }
  bool has_halo(int64_t kernel) const {
    return request_.split_image && kernel > 1;
  }

  int concatenate(const std::vector<int>& maps) {
    int64_t channels = 0;
    for (const int map : maps) channels += at(map).channels;
    const int out = make_value(channels, at(maps.front()).stride);
    Node node;
    node.kind = Node::Kind::kConcat;
    node.inputs = maps;
    node.output = out;
    record(node, {});
    return out;
  }

  int run_c3(const MemoryRow& row, int x) {
    const int64_t hidden = row.channels / 2;
    int deep = block(x, hidden, 1, 1);
    for (int64_t i = 0; i < row.repeats; ++i) {
      const int inner = block(deep, hidden, 1, 1);
      int next = block(inner, hidden, 3, 1);
      drop(inner);
      if (row.shortcut) {
        const int sum = make_value(hidden, at(x).stride);
        Node node;
        node.kind = Node::Kind::kAdd;
        node.inputs = {deep, next};
        node.output = sum;
        record(node, {});
        drop(next);
        next = sum;
      }
      drop(deep);
      deep = next;
    }
    const int side = block(x, hidden, 1, 1);
    const int both = concatenate({deep, side});
    const int out = block(both, row.channels, 1, 1);
    for (const int map : {side, both, deep}) drop(map);
    return out;
  }

  int run_sppf(const MemoryRow& row, int x) {
    const int64_t hidden = at(x).channels / 2;
    std::vector<int> maps = {block(x, hidden, 1, 1)};
    // Where images are split each pooling reads and gives more rows.
    Buffer wide = kNone;
    for (int64_t pooling = 0; pooling < kPoolings; ++pooling) {
      const Value input = at(maps.back());
      const int64_t reach =
          request_.split_image ? (kPoolings - pooling) * kPoolReach : 0;
      const Buffer widened =
          reach > 0 ? tape_.allocate(bytes_with_halo(input, reach)) : kNone;
      const int out = make_value(hidden, input.stride);
      const Buffer indices = tape_.allocate(bytes_with_halo(input, reach) /
                                            element() * kIndexBytes);
      Node node;
      node.kind = Node::Kind::kPool;
      node.inputs = {maps.back()};
      node.output = out;
      record(node, {widened != kNone ? widened : input.buffer, indices});
      tape_.release(indices);
      tape_.release(wide);
      wide = widened;
      maps.push_back(out);
    }
    tape_.release(wide);
    const int all = concatenate(maps);
    const int out = block(all, row.channels, 1, 1);
    drop(all);
    for (const int map : maps) drop(map);
    return out;
  }

  int run_upsample(int x) {
    const int out = make_value(at(x).channels, at(x).stride / 2);
    Node node;
    node.kind = Node::Kind::kUpsample;
    node.inputs = {x};
    node.output = out;
    record(node, {});
    return out;
  }

  std::vector<int> run_detect(const std::vector<int>& inputs) {
    std::vector<int> heads;
    for (const int x : inputs) {
      const Value input = at(x);
      const int64_t channels = kAnchors * (5 + request_.num_classes);
      Node node;
      node.kind = Node::Kind::kHead;
      node.inputs = {x};
      node.output = make_value(channels, input.stride);
      node.weight_bytes = input.channels * channels * element();
      tape_.touch(node.weight_bytes);
      record(node, {input.buffer});
      heads.push_back(node.output);
    }
    return heads;
  }

  std::vector<int> run_row(const MemoryRow& row,
                           const std::vector<int>& inputs) {
    switch (row.kind) {
      case MemoryRow::Kind::kConv: {
        const int x = inputs.front();
        return {block(x, row.channels, row.kernel, row.stride / at(x).stride)};
      }
      case MemoryRow::Kind::kC3:
        return {run_c3(row, inputs.front())};
      case MemoryRow::Kind::kSppf:
        return {run_sppf(row, inputs.front())};
      case MemoryRow::Kind::kUpsample:
        return {run_upsample(inputs.front())};
      case MemoryRow::Kind::kConcat:
        return {concatenate(inputs)};
      case MemoryRow::Kind::kDetect:
        return run_detect(inputs);
    }
    HEADROOM_CHECK(false, "a row of no kind");
  }

  // The loss of each level; all matches are counted on the first, where most
  // small boxes are and the map is largest.
  void run_loss(const std::vector<int>& heads) {
    for (size_t level = 0; level < heads.size(); ++level) {
      Node node;
      node.kind = Node::Kind::kLoss;
      node.inputs = {heads[level]};
      node.output = kNoOutput;
      node.cells = cells(at(heads[level]).stride) * kAnchors;
      node.matches = level == 0 ? request_.matches : 0;
      const Buffer objectness = tape_.allocate(node.cells * element());
      // Box gradients, objectness targets, overlap; then class logits.
      const Buffer rows = tape_.allocate(
          node.matches * (6 * kDoubleBytes + request_.num_classes * element()));
      tape_.touch(node.cells * kDoubleBytes);
      tape_.touch(node.cells * element());
      tape_.touch(node.matches * request_.num_classes * element());
      record(node, {objectness, rows});
      tape_.release(objectness);
      tape_.release(rows);
    }
  }

  void forward(MicroBatchMemory& memory) {
    const auto begin = static_cast<size_t>(request_.begin);
    const auto end = static_cast<size_t>(request_.end);
    const auto uses = count_uses(begin, end);
    std::map<int, int> left = uses.inside;
    for (const int received : uses.received) {
      maps_[received] =
          make_value(row_at(received).channels, row_at(received).stride);
      memory.received_bytes += bytes_of(at(maps_[received]));
    }
    if (uses.reads_images) {
      maps_[kImages] = make_value(request_.image_channels, 1);
      at(maps_[kImages]).wants_gradient = false;
      memory.image_bytes = bytes_of(at(maps_[kImages]));
      if (element() != 4) tape_.touch(memory.image_bytes / 2);
    }
    for (size_t i = begin; i < end; ++i) {
      const MemoryRow& row = request_.rows[i];
      row_ = i;
      row_saves_ = false;
      first_node_[i] = nodes_.size();
      if (request_.zero_stage >= 3)
        row_values_[i] = tape_.allocate(row_parameter_bytes(i));
      for (const int from : row.inputs) row_inputs_[i].push_back(maps_[from]);
      const std::vector<int> outputs = run_row(row, row_inputs_[i]);
      tape_.release(std::exchange(row_values_[i], kNone));
      if (row_saves_)
        for (const int input : row_inputs_[i]) hold_input(i, input);
      if (row.kind == MemoryRow::Kind::kDetect) {
        run_loss(outputs);
        for (const int head : outputs) drop(head);
        break;
      }
      maps_[static_cast<int>(i)] = outputs.front();
      for (const int from : row.inputs)
        if (from != kImages && --left[from] == 0) drop(maps_[from]);
    }
    for (const int row : uses.sent) {
      const int value = maps_[row];
      memory.sent_bytes += bytes_of(at(value));
      sent_.push_back(value);
      drop(value);
    }
    if (uses.reads_images) drop(maps_[kImages]);
  }

  struct Uses {
    std::map<int, int> inside;  // per row, one more where it is sent
    std::set<int> received, sent;
    bool reads_images = false;
  };
  Uses count_uses(size_t begin, size_t end) const {
    Uses uses;
    for (size_t i = begin; i < request_.rows.size(); ++i) {
      for (const int from : request_.rows[i].inputs) {
        if (i >= end) {
          if (from >= static_cast<int>(begin) && from < static_cast<int>(end))
            uses.sent.insert(from);
        } else if (from == kImages) {
          uses.reads_images = true;
        } else {
          ++uses.inside[from];
          if (from < static_cast<int>(begin)) uses.received.insert(from);
        }
      }
    }
    for (const int row : uses.sent) ++uses.inside[row];
    return uses;
  }
  const MemoryRow& row_at(int row) const {
    return request_.rows[static_cast<size_t>(row)];
  }

  void hold_input(size_t row, int value) {
    tape_.retain(at(value).buffer);
    held_[row].push_back(at(value).buffer);
  }

  // --- backward ------------------------------------------------------------
  void backward() {
    for (const int value : sent_)
      at(value).gradient = tape_.allocate(bytes_of(at(value)));
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = nodes_[i];
      if (node.kind != Node::Kind::kLoss) begin_row_backward(node.row);
      run_backward(nodes_[i]);
      if (node.kind != Node::Kind::kLoss && i == first_node_[node.row])
        end_row_backward(node.row);
    }
  }

  void begin_row_backward(size_t row) {
    if (is_begun_.insert(row).second) {
      if (request_.zero_stage >= 3)
        row_values_[row] = tape_.allocate(row_parameter_bytes(row));
      if (request_.zero_stage >= 2)
        row_gradients_[row] = tape_.allocate(row_parameter_bytes(row));
    }
    if (recomputes(row) && !is_produced_[row] && !held_[row].empty()) {
      is_produced_[row] = true;
      run_again(row);
    }
  }

  void run_again(size_t row) {
    // The graph is the first run's; its values stay as they are.
    const std::vector<Value> values = values_;
    for (size_t i = 0; i < row_inputs_[row].size(); ++i) {
      Value& input = at(row_inputs_[row][i]);
      input.buffer = held_[row][i];
      tape_.retain(input.buffer);
    }
    replay_ = true;
    next_replayed_ = first_node_[row];
    const std::vector<int> outputs =
        run_row(request_.rows[row], row_inputs_[row]);
    for (const int output : outputs) drop(output);
    for (const int input : row_inputs_[row]) drop(input);
    replay_ = false;
    values_ = values;
    for (const Buffer buffer : held_[row]) tape_.release(buffer);
  }

  void end_row_backward(size_t row) {
    if (request_.zero_stage >= 2) {
      // What a reduce_scatter receives.
      tape_.touch(row_parameter_bytes(row) / request_.num_shards);
    }
    tape_.release(std::exchange(row_gradients_[row], kNone));
    tape_.release(std::exchange(row_values_[row], kNone));
  }

  struct Gradient {
    Buffer buffer = kNone;
    bool is_slice = false;
  };
  Gradient take_gradient(int value) {
    Value& from = at(value);
    return {std::exchange(from.gradient, kNone),
            std::exchange(from.gradient_is_slice, false)};
  }

  // Takes over one reference to the gradient.
  void give(int value, Gradient gradient) {
    Value& to = at(value);
    if (!to.wants_gradient) return tape_.release(gradient.buffer);
    if (to.gradient == kNone) {
      to.gradient = gradient.buffer;
      to.gradient_is_slice = gradient.is_slice;
      return;
    }
    if (to.gradient_is_slice || tape_.is_shared(to.gradient)) {
      const Buffer sum = tape_.allocate(bytes_of(to));
      tape_.release(std::exchange(to.gradient, sum));
      to.gradient_is_slice = false;
    }
    tape_.release(gradient.buffer);
  }

  // Its own dense buffer: the same one, or a copy.
  Buffer own(const Gradient& gradient, int64_t bytes) {
    if (!gradient.is_slice && !tape_.is_shared(gradient.buffer))
      return gradient.buffer;
    const Buffer copy = tape_.allocate(bytes);
    tape_.release(gradient.buffer);
    return copy;
  }

  void run_backward(Node& node) {
    if (node.kind == Node::Kind::kLoss) {
      loss_backward(node);
    } else {
      const Gradient gradient = take_gradient(node.output);
      if (gradient.buffer == kNone) return;
      pass_back(node, gradient);
    }
    for (const Buffer buffer : node.saved) tape_.release(buffer);
    node.saved.clear();
  }

  void loss_backward(const Node& node) {
    const int head = node.inputs.front();
    const Buffer by_head = tape_.allocate(bytes_of(at(head)));
    tape_.touch(2 * node.cells * element());
    tape_.touch(2 * node.matches * request_.num_classes * element());
    give(head, {by_head, false});
  }

  void pass_back(const Node& node, const Gradient& gradient) {
    switch (node.kind) {
      case Node::Kind::kAdd:
        for (const int input : node.inputs) {
          tape_.retain(gradient.buffer);
          give(input, gradient);
        }
        return tape_.release(gradient.buffer);
      case Node::Kind::kConcat:
        for (const int input : node.inputs) {
          tape_.retain(gradient.buffer);
          give(input, {gradient.buffer, true});
        }
        return tape_.release(gradient.buffer);
      case Node::Kind::kUpsample:
      case Node::Kind::kPool:
        return resample_back(node, gradient);
      default:
        return convolution_back(node, gradient);
    }
  }

  void resample_back(const Node& node, const Gradient& gradient) {
    const Value& input = at(node.inputs.front());
    const Buffer copy =
        gradient.is_slice ? tape_.allocate(bytes_of(at(node.output))) : kNone;
    const int64_t bytes = request_.split_image && node.kind == Node::Kind::kPool
                              ? bytes_with_halo(input, kPoolings * kPoolReach)
                              : bytes_of(input);
    const Buffer dx = tape_.allocate(bytes);
    tape_.release(copy);
    tape_.release(gradient.buffer);
    give(node.inputs.front(), {dx, false});
  }

  void convolution_back(const Node& node, const Gradient& gradient) {
    const int x = node.inputs.front();
    const Buffer dy = node.kind == Node::Kind::kHead
                          ? gradient.buffer
                          : own(gradient, bytes_of(at(node.output)));
    const bool halo = node.kind == Node::Kind::kBlock && has_halo(node.kernel);
    const int64_t in_bytes = halo ? bytes_with_halo(at(x), 1) : bytes_of(at(x));
    const Buffer joined = halo ? tape_.allocate(in_bytes) : kNone;
    Buffer dx = at(x).wants_gradient ? tape_.allocate(in_bytes) : kNone;
    const Buffer dweight = tape_.allocate(node.weight_bytes);
    tape_.touch(2 * node.weight_bytes);
    tape_.release(joined);
    if (halo && dx != kNone) {
      const Buffer cut = tape_.allocate(bytes_of(at(x)));
      tape_.release(std::exchange(dx, cut));
    }
    tape_.release(dy);
    if (dx != kNone) give(x, {dx, false});
    tape_.release(dweight);
  }

  static constexpr int kNoOutput = -1;

  const MicroBatchRequest& request_;
  MemoryTape tape_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::map<int, int> maps_;  // row -> value
  std::vector<int> sent_;
  // The row that runs, and whether it wants to keep something.
  size_t row_ = 0;
  bool row_saves_ = false;
  bool replay_ = false;
  size_t next_replayed_ = 0;
  // Per row of the model.
  std::vector<size_t> first_node_;
  std::vector<Buffer> row_values_, row_gradients_;
  std::vector<std::vector<int>> row_inputs_;
  std::vector<bool> is_produced_;
  std::map<size_t, std::vector<Buffer>> held_;
  std::set<size_t> is_begun_;
};

}  // namespace

MicroBatchMemory micro_batch_memory(const MicroBatchRequest& request) {
  HEADROOM_CHECK(request.begin >= 0 && request.begin < request.end &&
                     request.end <= static_cast<int64_t>(request.rows.size()),
                 "rows " + std::to_string(request.begin) + " to " +
                     std::to_string(request.end) + " of " +
                     std::to_string(request.rows.size()));
  return Walk(request).run();
}

}  // namespace headroom
