#include "parallel/predict/stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::predict {
namespace {

constexpr int kImages = -1;
constexpr int64_t kAlignment = 64;  // bytes at which a tensor begins

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

plan::ActivationPolicy policy_at(const Stage& stage, int64_t row) {
  return stage.policies.empty() ? plan::ActivationPolicy::kKeep
                                : stage.policies.at(static_cast<size_t>(row));
}

}  // namespace

std::vector<int> Stage::received() const {
  std::set<int> result;
  for (int64_t row = begin; row < end; ++row)
    for (const int from : rows[static_cast<size_t>(row)].inputs)
      if (from != kImages && from < begin) result.insert(from);
  return {result.begin(), result.end()};
}

std::vector<int> Stage::sent() const {
  std::set<int> result;
  for (size_t row = static_cast<size_t>(end); row < rows.size(); ++row)
    for (const int from : rows[row].inputs)
      if (from >= begin && from < end) result.insert(from);
  return {result.begin(), result.end()};
}

int64_t flat_bytes(const ModelRow& row, int64_t element_bytes) {
  const int64_t bytes = row.parameters * element_bytes;
  // A head has odd numbers.
  const auto fills = [element_bytes](const layers::RowProgram::Block& block) {
    return block.channels * element_bytes % kAlignment == 0 &&
           block.squeezed * element_bytes % kAlignment == 0 &&
           block.weights() * element_bytes % kAlignment == 0;
  };
  const bool fills_lines =
      !row.is_head() && std::ranges::all_of(row.program->blocks, fills);
  return fills_lines ? bytes : bytes + row.parameter_tensors * kAlignment;
}

int64_t slice_bytes(const ModelRow& row, int64_t element_bytes, int shards) {
  return divided_up(divided_up(flat_bytes(row, element_bytes), shards),
                    kAlignment) *
         kAlignment;
}

MicroBatch::MicroBatch(Tape& tape, const Stage& stage, const Extents& extents,
                       LossShape loss)
    : tape_(tape),
      stage_(stage),
      extents_(extents),
      loss_(std::move(loss)),
      graph_(tape),
      offload_(tape),
      derives_(std::ranges::any_of(
          stage.policies, [](plan::ActivationPolicy policy) {
            return policy == plan::ActivationPolicy::kLean ||
                   policy == plan::ActivationPolicy::kRecompute;
          })) {}

int64_t MicroBatch::map_bytes(int row) const {
  return extents_.map_bytes(row_at(row).channels, row_at(row).stride);
}

int64_t MicroBatch::row_bytes(int64_t row) const {
  return slice_bytes(row_at(row), extents_.parameter_bytes(),
                     stage_.num_shards) *
         stage_.num_shards;
}

std::vector<Map> MicroBatch::evaluate(std::vector<Memory> received) {
  HEADROOM_CHECK(stage_.num_frozen_rows >= stage_.end, "a row learns");
  Map images;
  return run(std::move(received), images);
}

std::vector<Map> MicroBatch::run(std::vector<Memory> received, Map& images) {
  const std::vector<int> rows = stage_.received();
  received_gradients_.resize(rows.size());
  std::map<int, Map> maps;
  for (size_t i = 0; i < rows.size(); ++i)
    maps[rows[i]] = received_map(rows[i], std::move(received[i]), i);
  received.clear();
  Memory colours;
  if (stage_.begin == 0) {
    tape_.set_row(0);
    const int64_t loaded_channels =
        stage_.image_channels == 1 ? kColours : stage_.image_channels;
    // Gray is made beside the colours that are handed in.
    if (stage_.image_channels == 1)
      colours = tape_.allocate(kColours * image_bytes());
    // An evaluation's bytes come beside what is made of them; those of a step
    // have a place of their own (rank_share.h).
    const bool learns = stage_.num_frozen_rows < stage_.end;
    const Memory loaded = tape_.allocate(
        extents_.on_device && !learns ? loaded_channels * extents_.cells(1)
                                      : 0);
    images = {tape_.allocate(image_bytes()), stage_.image_channels, 1};
    // As float32 first.
    if (extents_.element_bytes != kFloatBytes)
      tape_.touch(loaded_channels * extents_.map_bytes(1, 1) /
                  extents_.element_bytes * kFloatBytes);
  }
  teacher_heads_ = ask_teacher(images);
  return run_rows(std::move(maps), images);
}

std::vector<Map> MicroBatch::ask_teacher(const Map& images) {
  if (stage_.teacher.empty()) return {};
  Stage teacher;
  teacher.rows = stage_.teacher;
  teacher.end = teacher.num_frozen_rows =
      static_cast<int64_t>(teacher.rows.size());
  teacher.image_channels = stage_.image_channels;
  teacher.casts_weights = true;
  return MicroBatch(tape_, teacher, extents_, {}).run_rows({}, images);
}

std::vector<Memory> MicroBatch::forward(std::vector<Memory> received) {
  Map images;
  const std::vector<Map> outputs = run(std::move(received), images);
  std::vector<Memory> sent;
  if (stage_.has_head()) {
    Pass pass = {extents_, tape_, graph_, stage_.end - 1};
    LossShape loss = loss_;
    loss.has_teacher = !teacher_heads_.empty();
    run_loss(pass, outputs, loss);
    teacher_heads_.clear();
    return sent;
  }
  sent_gradients_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    sent.push_back(outputs[i].memory);
    if (!outputs[i].wants_gradient()) continue;
    Graph::Node end;
    end.row = stage_.end - 1;
    end.inputs = {outputs[i].node};
    end.is_root = true;
    end.backward = [this, i](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{std::move(sent_gradients_[i]), false}};
      return outcome;
    };
    graph_.add(std::move(end));
  }
  return sent;
}

void MicroBatch::capture() {
  Map images;
  const std::vector<Map> heads = run({}, images);
  std::vector<Memory> gradients;
  for (const Map& head : heads) {
    gradients.push_back(tape_.allocate(head.memory->bytes));
    Graph::Node replay;
    replay.row = stage_.end - 1;
    replay.inputs = {head.node};
    replay.is_root = true;
    // Not worked on in place: it is needed again.
    replay.backward = [gradient = gradients.back()](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{gradient, true}};
      return outcome;
    };
    graph_.add(std::move(replay));
  }
  backward({});
}

Map MicroBatch::received_map(int row, Memory memory, size_t index) {
  if (!stage_.has_learners_before())
    return {std::move(memory), row_at(row).channels, row_at(row).stride};
  Graph::Node node;
  node.row = stage_.begin;
  node.output_bytes = memory->bytes;
  node.backward = [this, index, bytes = memory->bytes](Gradient gradient) {
    // What is sent is dense.
    received_gradients_[index] =
        gradient.is_slice ? tape_.allocate(bytes) : std::move(gradient.memory);
    return Graph::Outcome();
  };
  return {std::move(memory), row_at(row).channels, row_at(row).stride,
          graph_.add(std::move(node))};
}

std::vector<Map> MicroBatch::run_rows(std::map<int, Map> maps,
                                      const Map& images) {
  std::map<int, int> uses;
  for (int64_t i = stage_.begin; i < stage_.end; ++i)
    for (const int from : row_at(i).inputs) ++uses[from];
  const std::vector<int> wanted = stage_.sent();
  for (const int row : wanted) ++uses[row];

  for (int64_t i = stage_.begin; i < stage_.end; ++i) {
    std::vector<Map> inputs;
    for (const int from : row_at(i).inputs)
      inputs.push_back(from == kImages ? images : maps.at(from));
    tape_.set_row(i);
    if (before_row) before_row(i);
    if (shards_values() && row_at(i).parameters > 0)
      provide_values(i, /*backwards=*/false);
    std::vector<Map> outputs = run_with_policy(i, inputs);
    values_.erase(i);
    for (Map& output : outputs) add_use_again(i, output);
    if (row_at(i).is_head()) return outputs;
    maps[static_cast<int>(i)] = std::move(outputs.front());
    for (const int from : row_at(i).inputs)
      if (from != kImages && --uses[from] == 0) maps.erase(from);
  }
  std::vector<Map> result;
  for (const int row : wanted) result.push_back(maps.at(row));
  return result;
}

std::vector<Map> MicroBatch::run_with_policy(int64_t row,
                                             const std::vector<Map>& inputs) {
  Pass pass = {extents_, tape_, graph_, row};
  pass.learns = stage_.learns(row);
  pass.casts_weights =
      extents_.is_mixed() && (shards_values() || stage_.casts_weights);
  switch (policy_at(stage_, row)) {
    case plan::ActivationPolicy::kKeep:
      if (derives_) pass.derive = Derive::kNoted;
      break;
    case plan::ActivationPolicy::kRecompute:
      if (!row_at(row).saves_only_inputs()) return run_recomputed(pass, inputs);
      [[fallthrough]];
    case plan::ActivationPolicy::kLean:
      pass.policy = &lean_;
      pass.derive = Derive::kLean;
      break;
    case plan::ActivationPolicy::kOffload:
      pass.policy = &offload_;
      break;
  }
  return run_row(pass, row_at(row), inputs);
}

std::vector<Map> MicroBatch::run_recomputed(const Pass& pass,
                                            const std::vector<Map>& inputs) {
  RecomputeOptions options;
  if (!shards_values() && row_at(pass.row).is_one_convolution()) {
    options.inputs = Cost::kConvolution;
    options.output = Cost::kConvolution;
  }
  return recompute(
      pass,
      [&row = row_at(pass.row)](const Pass& inside, std::vector<Map> given) {
        return run_row(inside, row, given);
      },
      inputs, options);
}

// The row's parameters come back before its backward.
void MicroBatch::add_use_again(int64_t row, Map& output) {
  if (!shards_values() || row_at(row).parameters == 0 ||
      !output.wants_gradient())
    return;
  Graph::Node node;
  node.row = row;
  node.output_bytes = output.memory->bytes;
  node.inputs = {output.node};
  node.backward = [this, row](Gradient gradient) {
    provide_values(row, /*backwards=*/true);
    Graph::Outcome outcome;
    outcome.inputs = {std::move(gradient)};
    return outcome;
  };
  output.node = graph_.add(std::move(node));
}

void MicroBatch::provide_values(int64_t row, bool backwards) {
  if (!values_.contains(row)) values_[row] = tape_.allocate(row_bytes(row));
  if (!stage_.fetches_ahead) return;
  const int64_t step = backwards ? -1 : 1;
  for (int64_t next = row + step; next >= stage_.begin && next < stage_.end;
       next += step) {
    if (row_at(next).parameters == 0) continue;
    // Only rows that learn are gathered for their backward.
    if (!backwards || stage_.learns(next))
      if (!values_.contains(next))
        values_[next] = tape_.allocate(row_bytes(next));
    return;
  }
}

std::vector<Memory> MicroBatch::backward(std::vector<Memory> sent) {
  sent_gradients_ = std::move(sent);
  num_missing_ = graph_.parameter_nodes();
  graph_.run_backward([this](int64_t row) { after_parameters(row); },
                      before_row);
  // Of maps that nothing learns from, zeros are sent.
  const std::vector<int> rows = stage_.received();
  for (size_t i = 0; i < rows.size(); ++i)
    if (received_gradients_[i] == nullptr)
      received_gradients_[i] = tape_.allocate(map_bytes(rows[i]));
  return std::move(received_gradients_);
}

void MicroBatch::after_parameters(int64_t row) {
  if (stage_.zero_stage < 2) return;
  if (!gradients_.contains(row))
    gradients_[row] = tape_.allocate(row_bytes(row));
  if (--num_missing_.at(row) > 0) return;
  values_.erase(row);
  gradients_.erase(row);
}

}  // namespace headroom::predict
