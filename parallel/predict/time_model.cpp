#include "parallel/predict/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "parallel/plan/plan_parts.h"

namespace headroom::predict {

bool wheel_has_code_for(int compute_capability) {
  constexpr std::array kBuilt = {75, 80, 86, 90, 100, 120};
  return std::any_of(kBuilt.begin(), kBuilt.end(), [&](int built) {
    return built / 10 == compute_capability / 10 && built <= compute_capability;
  });
}

int64_t tensor_budget(int64_t gpu_memory_bytes, int64_t communication_bytes) {
  const int64_t usable = gpu_memory_bytes / 100 * (100 - kGpuMarginPercent);
  return std::max<int64_t>(0, usable - kGpuContextBytes - communication_bytes);
}

namespace {

class TimeEstimator {
 public:
  explicit TimeEstimator(const TimeRequest& request)
      : request_(request),
        plan_(request.plan),
        cut_(plan::batch_cut(plan_, request.global_batch_size)),
        part_(plan::part_of(cut_, request.global_batch_size, plan::kManyCells,
                            0)),
        share_(static_cast<double>(part_.local.size())),
        spatial_(plan_.layout.spatial_parallel_size),
        num_micro_batches_(static_cast<double>(part_.micro_batches.size())),
        shared_(plan::shared_groups(cut_, request.global_batch_size,
                                    plan::kManyCells)) {}

  StepEstimate run() {
    StepEstimate estimate;
    for (size_t stage = 0; stage < plan_.stage_begins.size(); ++stage) {
      const StageTime& time = estimate.stages.emplace_back(StageTime{
          .compute = compute_of(stage),
          .gradients = gradients_of(stage),
          .statistics = statistics_of(stage),
          .num_statistics = num_statistics_of(stage),
          .image = image_of(stage),
          .maps = maps_of(stage),
          .copies = std::max(0.0, copies_of(stage) - compute_of(stage))});
      estimate.compute = std::max(estimate.compute, time.compute);
      estimate.statistics = std::max(estimate.statistics, time.statistics);
      estimate.num_statistics += time.num_statistics;
      estimate.communication = std::max(
          estimate.communication, time.gradients + time.image + time.maps +
                                      time.statistics + time.copies);
    }
    // A stage waits for the others while the pipeline fills and drains.
    const double others = static_cast<double>(plan_.stage_begins.size()) - 1;
    estimate.compute *= (num_micro_batches_ + others) / num_micro_batches_;
    return estimate;
  }

 private:
  plan::LayerRange range_of(size_t stage) const {
    return plan::layers_of_stage(plan_.stage_begins, stage,
                                 request_.layers.size());
  }
  template <typename Body>
  void for_layers(size_t stage, const Body& body) const {
    const plan::LayerRange range = range_of(stage);
    for (int64_t i = range.begin; i < range.end; ++i) {
      body(request_.layers[static_cast<size_t>(i)]);
    }
  }
  double pixels() const {
    return static_cast<double>(request_.image_height) *
           static_cast<double>(request_.image_width);
  }
  static double over(const Link& link, double count, double bytes) {
    return count * link.latency_seconds + bytes / link.bytes_per_second;
  }
  // Seconds of consecutive sums, and of messages between two ranks.
  double sums(double count, double bytes) const {
    return over(request_.device.sums, count, bytes);
  }
  double messages(double count, double bytes) const {
    return over(request_.device.messages, count, bytes);
  }
  double parameter_bytes(size_t stage) const {
    double parameters = 0;
    for_layers(stage, [&](const TimedLayer& layer) {
      parameters += static_cast<double>(layer.parameters);
    });
    return parameters * static_cast<double>(request_.element_bytes);
  }

  double compute_of(size_t stage) const {
    double work = 0;
    for_layers(stage,
               [&](const TimedLayer& layer) { work += layer.work_per_pixel; });
    return work * pixels() * share_ / spatial_ /
           request_.device.work_per_second;
  }

  // Seconds of gradient exchange per step.
  double gradients_of(size_t stage) const {
    const int replicas =
        plan_.layout.data_parallel_size * plan_.layout.spatial_parallel_size;
    if (replicas == 1) return 0;
    const plan::LayerRange range = range_of(stage);
    const bool gathers = plan_.zero_stage == 3;
    const double ring = (replicas - 1.0) / replicas;
    // A sum is a scatter and a gather. ZeRO 3 gathers in each forward and
    // backward.
    const double passes = gathers ? 1 + 2 * num_micro_batches_ : 2;
    const double count =
        gathers ? 3 * static_cast<double>(range.end - range.begin) *
                      num_micro_batches_
                : 2;
    return sums(count, passes * ring * parameter_bytes(stage));
  }

  // The groups that a rank shares with others, at most: one or two.
  int64_t most_shared() const {
    int rounds = 0;
    for (const plan::SharedGroup& group : shared_) {
      rounds = std::max(rounds, group.round + 1);
    }
    return rounds;
  }
  int64_t num_statistics_of(size_t stage) const {
    int64_t sums = 0;
    for_layers(stage, [&](const TimedLayer& layer) {
      sums += 2 * layer.norm_layers * most_shared();
    });
    return sums;
  }

  // Batch-norm sums of groups that ranks share, forward and backward; each
  // passes up and down a tree of these ranks.
  double statistics_of(size_t stage) const {
    if (shared_.empty()) return 0;
    double numbers = 0;
    for_layers(stage, [&](const TimedLayer& layer) {
      numbers += 2 * static_cast<double>(layer.norm_layers * layer.channels);
    });
    int ranks = 0;
    for (const plan::SharedGroup& group : shared_) {
      ranks = std::max(ranks, group.num_ranks());
    }
    const auto count = static_cast<double>(num_statistics_of(stage));
    const double start = request_.device.is_card ? kSecondsToStartSum : 0;
    return count * start + sums(count * std::ceil(std::log2(ranks)),
                                2 * 2 * static_cast<double>(most_shared()) *
                                    numbers * sizeof(double));
  }

  // Seconds of exchanges between the ranks of one image, forward and backward.
  double image_of(size_t stage) const {
    if (spatial_ == 1) return 0;
    double cells = 0, exchanges = 0, statistics = 0;
    for_layers(stage, [&](const TimedLayer& layer) {
      cells += static_cast<double>(layer.halo_channel_rows) *
               static_cast<double>(request_.image_width / layer.stride);
      exchanges += static_cast<double>(layer.halo_exchanges);
      statistics += static_cast<double>(layer.norm_layers);
    });
    const double neighbours = spatial_ > 2 ? 2 : 1;
    const double passes = 2 * num_micro_batches_;
    return sums(passes * statistics, 0) +
           messages(passes * neighbours * exchanges,
                    2 * share_ * neighbours * cells *
                        static_cast<double>(request_.element_bytes));
  }

  // Seconds to receive maps from earlier stages and return their gradients.
  double maps_of(size_t stage) const {
    const auto begin = static_cast<int>(range_of(stage).begin);
    std::set<int> received;
    for_layers(stage, [&](const TimedLayer& layer) {
      for (const int input : layer.inputs) {
        if (input >= 0 && input < begin) received.insert(input);
      }
    });
    double cells = 0;
    for (const int input : received) {
      const TimedLayer& layer = request_.layers[static_cast<size_t>(input)];
      cells += static_cast<double>(layer.channels) * pixels() /
               static_cast<double>(layer.stride * layer.stride);
    }
    return messages(
        2 * num_micro_batches_ * static_cast<double>(received.size()),
        2 * share_ / spatial_ * cells *
            static_cast<double>(request_.element_bytes));
  }

  // Seconds to copy state that no other rank has to a peer's memory, during the
  // next step: a rank's part of the weights, momentum and average. Counts
  // stages of a pipeline that have a replica too, because it may be on the same
  // machine.
  double copies_of(size_t stage) const {
    constexpr double kBuffers = 3;
    const int data = plan_.layout.data_parallel_size;
    const bool is_sharded = plan_.zero_stage > 0 && data > 1;
    const bool is_whole =
        !is_sharded && plan_.layout.pipeline_parallel_size == 1;
    if (!request_.device.is_card || is_whole) return 0;
    const double part = is_sharded ? 1.0 / data : 1;
    return over(request_.device.copies, 1,
                parameter_bytes(stage) * kBuffers * part);
  }

  const TimeRequest& request_;
  const plan::Plan& plan_;
  const plan::BatchCut cut_;
  const plan::BatchPart part_;  // data rank 0's part of a full batch
  const double share_;          // images per rank and step
  const double spatial_;
  const double num_micro_batches_;
  const std::vector<plan::SharedGroup> shared_;
};

}  // namespace

StepEstimate estimate_step(const TimeRequest& request) {
  return TimeEstimator(request).run();
}

}  // namespace headroom::predict
