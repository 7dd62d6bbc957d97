#include "parallel/planner/stage_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/predict/rank_share.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Layers [begin, end) as one stage.
struct Part {
  double cost = 0;
  int64_t fixed_bytes = 0;
  // activations and received maps of one micro-batch
  int64_t bytes_in_flight = 0;
  // activations of one micro-batch, without received maps
  int64_t activation_bytes = 0;
  int64_t busy_bytes = 0;  // peak at the fullest layer, including activations
  int64_t received_bytes = 0;  // received maps of one micro-batch
  bool has_parameters = false;
  bool receives_unsent = false;  // a map that may not be sent
  bool can_be_stage() const { return has_parameters && !receives_unsent; }
};

class Partitioner {
 public:
  explicit Partitioner(const PartitionRequest& request)
      : request_(request),
        num_layers_(static_cast<int>(request.layers.size())),
        num_stages_(static_cast<int>(request.in_flight.size())),
        parts_(request.layers.size() * (request.layers.size() + 1)) {
    HEADROOM_CHECK(num_stages_ > 0, "a pipeline without stages");
    for (int begin = 0; begin < num_layers_; ++begin) add_parts_from(begin);
  }

  // The largest stage cost of the best partition; infinity if no partition
  // fits.
  double smallest_largest_cost() const {
    const std::vector<std::vector<double>> best = solve(
        [](double rest, const Part& part) { return std::max(rest, part.cost); },
        kInfinity);
    return best[0][0];
  }

  // The cuts with the fewest received bytes in which no stage costs more than
  // `largest_cost`.
  std::vector<int64_t> cuts(double largest_cost) const {
    const auto join = [](double rest, const Part& part) {
      return rest + static_cast<double>(part.received_bytes);
    };
    const std::vector<std::vector<double>> best = solve(join, largest_cost);
    std::vector<int64_t> stage_begins;
    int begin = 0;
    for (int stage = 0; stage < num_stages_; ++stage) {
      stage_begins.push_back(begin);
      int end = begin + 1;
      while (!(fits(stage, begin, end, largest_cost) &&
               join(best[at(stage + 1)][at(end)], part(begin, end)) ==
                   best[at(stage)][at(begin)]))
        ++end;
      begin = end;
    }
    return stage_begins;
  }

  const Part& part(int begin, int end) const {
    return parts_[at(begin) * at(num_layers_ + 1) + at(end)];
  }

  int64_t bytes(int stage, int begin, int end) const {
    const Part& layers = part(begin, end);
    return layers.fixed_bytes +
           request_.in_flight[at(stage)] * layers.bytes_in_flight +
           (layers.busy_bytes - layers.activation_bytes);
  }

  // The bytes of the fullest stage, in the partition that makes this number
  // smallest; no value if there is no partition.
  std::optional<int64_t> smallest_limit() const {
    std::vector<int64_t> next(at(num_layers_ + 1), kNever);
    next.back() = 0;
    for (int stage = num_stages_ - 1; stage >= 0; --stage) {
      std::vector<int64_t> now(at(num_layers_ + 1), kNever);
      for (int begin = 0; begin < num_layers_; ++begin)
        for (int end = begin + 1; end <= num_layers_; ++end)
          if (part(begin, end).can_be_stage())
            now[at(begin)] =
                std::min(now[at(begin)],
                         std::max(next[at(end)], bytes(stage, begin, end)));
      next = std::move(now);
    }
    if (next.front() == kNever) return std::nullopt;
    return next.front();
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  static size_t at(int index) { return static_cast<size_t>(index); }

  void add_parts_from(int begin) {
    Part sum;
    std::set<int> received;
    for (int layer = begin; layer < num_layers_; ++layer) {
      const PartitionLayer& added = request_.layers[at(layer)];
      HEADROOM_CHECK(std::isfinite(added.cost) && added.cost >= 0 &&
                         added.fixed_bytes >= 0 &&
                         added.activation_bytes >= 0 && added.busy_bytes >= 0 &&
                         added.map_bytes >= 0,
                     cat("layer ", layer, " has a negative cost"));
      sum.cost += added.cost;
      sum.fixed_bytes += added.fixed_bytes;
      sum.bytes_in_flight += added.activation_bytes;
      sum.busy_bytes =
          std::max(sum.busy_bytes, sum.activation_bytes + added.busy_bytes);
      sum.activation_bytes += added.activation_bytes;
      sum.busy_bytes = std::max(sum.busy_bytes, sum.activation_bytes);
      sum.has_parameters |= added.has_parameters;
      for (const int input : added.inputs) {
        HEADROOM_CHECK(input >= -1 && input < layer,
                       cat("layer ", layer, " reads layer ", input));
        if (input < 0 || input >= begin || !received.insert(input).second)
          continue;
        sum.bytes_in_flight += request_.layers[at(input)].map_bytes;
        sum.received_bytes += request_.layers[at(input)].map_bytes;
        sum.receives_unsent |= !request_.layers[at(input)].may_be_sent;
      }
      parts_[at(begin) * at(num_layers_ + 1) + at(layer + 1)] = sum;
    }
  }

  bool fits(int stage, int begin, int end, double largest_cost) const {
    const Part& layers = part(begin, end);
    return layers.can_be_stage() && layers.cost <= largest_cost &&
           (!request_.memory_limit_bytes ||
            bytes(stage, begin, end) <= *request_.memory_limit_bytes);
  }

  // best[stage][begin]: the smallest result of `join` over all ways to divide
  // layers [begin, num_layers) between the stages from `stage` on.
  template <typename Join>
  std::vector<std::vector<double>> solve(const Join& join,
                                         double largest_cost) const {
    std::vector<std::vector<double>> best(
        at(num_stages_ + 1),
        std::vector<double>(at(num_layers_ + 1), kInfinity));
    best[at(num_stages_)][at(num_layers_)] = 0;
    for (int stage = num_stages_ - 1; stage >= 0; --stage)
      for (int begin = 0; begin < num_layers_; ++begin)
        for (int end = begin + 1; end <= num_layers_; ++end) {
          const double rest = best[at(stage + 1)][at(end)];
          if (rest == kInfinity || !fits(stage, begin, end, largest_cost))
            continue;
          double& least = best[at(stage)][at(begin)];
          least = std::min(least, join(rest, part(begin, end)));
        }
    return best;
  }

  const PartitionRequest& request_;
  const int num_layers_;
  const int num_stages_;
  std::vector<Part> parts_;  // the layers [begin, end) at [begin][end]
};

// A stage's memory limit, relative to smallest_memory_limit().
constexpr double kMemorySlack = 1.05;

// Bytes on one rank of a layer's parameters and all buffers of the same size.
int64_t state_bytes(predict::MemoryRequest& request, int64_t layer) {
  request.plan.stage_begins = {0, layer, layer + 1};
  plan::MeshCoordinates alone;
  alone.pipeline_stage = 1;
  const predict::MemoryEstimate state =
      predict::RankShare(request, alone).resident();
  return state.parameters + state.gradients + state.accumulated_gradients +
         state.moments + state.average;
}

PartitionRequest partition_request(const predict::MemoryRequest& memory) {
  const plan::Plan& plan = memory.plan;
  predict::MemoryRequest undivided = memory;
  undivided.plan.stage_begins = {0};
  const predict::RankMicroBatch whole =
      predict::rank_micro_batch(undivided, {});
  const std::vector<predict::LayerMemory> bytes =
      predict::layer_memory(whole.stage, whole.shape, whole.loss);
  PartitionRequest request;
  for (size_t i = 0; i < memory.layers.size(); ++i) {
    const layers::LayerCost& layer = memory.layers[i];
    PartitionLayer part;
    part.cost = layer.multiply_adds_per_pixel *
                static_cast<double>(memory.image_height * memory.image_width);
    part.fixed_bytes = state_bytes(undivided, static_cast<int64_t>(i));
    part.activation_bytes = bytes[i].kept_bytes;
    part.busy_bytes = bytes[i].peak_bytes;
    part.map_bytes = whole.shape.map_bytes(layer.channels, layer.stride);
    part.has_parameters = layer.parameters > 0;
    part.may_be_sent = !layer.is_branch();
    part.inputs = layer.inputs;
    request.layers.push_back(part);
  }
  // In the 1F1B schedule a stage holds one more micro-batch for each stage
  // after it.
  const int stages = plan.layout.pipeline_parallel_size;
  const int64_t micro_batches =
      plan::num_micro_batches(plan, memory.global_batch_size);
  for (int stage = 0; stage < stages; ++stage) {
    request.in_flight.push_back(
        std::min<int64_t>(stages - stage, micro_batches));
  }
  return request;
}

}  // namespace

std::optional<std::vector<int64_t>> partition_stages(
    const PartitionRequest& request) {
  const Partitioner partitioner(request);
  const double largest_cost = partitioner.smallest_largest_cost();
  if (largest_cost == kInfinity) return std::nullopt;
  return partitioner.cuts(largest_cost);
}

std::optional<int64_t> smallest_memory_limit(const PartitionRequest& request) {
  return Partitioner(request).smallest_limit();
}

int64_t most_stages(const std::vector<layers::LayerCost>& layers) {
  int64_t stages = 0;
  bool has_branches = false;
  for (const layers::LayerCost& layer : layers) {
    has_branches |= layer.is_branch();
    stages += layer.parameters > 0 && !layer.is_branch() ? 1 : 0;
  }
  return stages + (has_branches ? 1 : 0);
}

std::vector<int64_t> cut_stages(const predict::MemoryRequest& memory) {
  PartitionRequest request = partition_request(memory);
  if (const auto least = smallest_memory_limit(request)) {
    request.memory_limit_bytes =
        std::llround(kMemorySlack * static_cast<double>(*least));
  }
  auto stage_begins = partition_stages(request);
  HEADROOM_CHECK(stage_begins.has_value(), "more stages than layers");
  return *std::move(stage_begins);
}

std::vector<StageShare> stage_shares(
    const plan::Plan& plan, const std::vector<layers::LayerCost>& layers) {
  std::vector<StageShare> shares;
  for (size_t stage = 0; stage < plan.stage_begins.size(); ++stage) {
    StageShare share;
    const plan::LayerRange range =
        plan::layers_of_stage(plan.stage_begins, stage, layers.size());
    share.begin = range.begin;
    share.end = range.end;
    for (int64_t layer = share.begin; layer < share.end; ++layer) {
      const layers::LayerCost& cost = layers.at(static_cast<size_t>(layer));
      share.parameters += cost.parameters;
      share.multiply_adds_per_pixel += cost.multiply_adds_per_pixel;
    }
    shares.push_back(share);
  }
  return shares;
}

}  // namespace headroom::planner
