#include "parallel/predict/forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "parallel/base/units.h"
#include "parallel/plan/exchange_sizes.h"
#include "parallel/plan/plan_parts.h"

namespace headroom::predict {
namespace {

// A sum of batch-norm counts follows the gradients, then the vote, with the
// matches of three levels.
constexpr double kCountBytes = 4096;
double vote_bytes(int64_t ranks) {
  return static_cast<double>(plan::num_reports(ranks, 3) *
                             int64_t{sizeof(double)});
}
// Backward does two of a layer's three convolutions.
constexpr double kBackwardShare = 2.0 / 3;

// What hosts of cards exchange goes through memory inside a machine, and over
// TCP between machines.
constexpr Link kHostMemory{.bytes_per_second = 1e10, .latency_seconds = 10e-6};
constexpr Link kHostLink{.bytes_per_second = 1e9, .latency_seconds = 27e-6};

// Costs on cards. One H200 was measured alone; those of several ranks are
// assumptions, for which benchmark_gpu_step --ghosts has not run yet. A block
// is a convolution with batch norm.
//
// The host's time to start a step, for each block of each micro-batch, and what
// additions of gradients add if layers are scattered (ZeRO 2 and 3).
constexpr double kSecondsToStartStep = 0.5e-3;
constexpr double kSecondsToStartBlock = 0.114e-3;
constexpr double kSecondsToStartAdditions = 21e-6;
// The card's time for these additions, for each block.
constexpr double kSecondsOfAdditions = 6.6e-6;
// NCCL's kernels take this share of the card while they run beside backward.
constexpr double kShareOfSums = 0.08;
// The end of a step whose hosts vote: the host reads the losses, votes, and
// starts the commit, while the card waits.
constexpr double kSecondsOfEnd = 0.4e-3;
// Rank 0 hands the step's line to the thread that writes it.
constexpr double kSecondsOfLine = 60e-6;
// Cards differ: each doubling of their number makes the slowest of them slower
// by this share of its computing.
constexpr double kSlowestForDoubling = 0.003;

// Seconds of `count` consecutive messages with bytes_in_all bytes together.
double messages(double count, double bytes_in_all, const Link& link) {
  return count * link.latency_seconds + bytes_in_all / link.bytes_per_second;
}

double ring(double ranks, double bytes, const Link& link) {
  return messages(2 * (ranks - 1), 2 * (ranks - 1) / ranks * bytes, link);
}

// Seconds of a sum that goes up a tree and down again, if its chunks follow one
// another without gaps.
double tree(double ranks, double bytes, const Link& link) {
  return messages(2 * std::ceil(std::log2(ranks)), 2 * bytes, link);
}

// One card's share of the machine's network when all cards use it.
Link card_share(const Machines& machines) {
  Link link = machines.between;
  link.bytes_per_second /= static_cast<double>(machines.cards_each);
  return link;
}

class Forecaster {
 public:
  explicit Forecaster(const ForecastRequest& request)
      : request_(request),
        plan_(request.step.plan),
        machines_(request.machines),
        near_(estimate_with(machines_.inside)),
        far_(machines_.number == 1 ? near_
                                   : estimate_with(card_share(machines_))),
        micro_batches_(static_cast<double>(
            plan::num_micro_batches(plan_, request.step.global_batch_size))) {}

  StepForecast run() const {
    StepForecast forecast;
    double work = 0;
    const size_t stages = plan_.stage_begins.size();
    for (size_t stage = 0; stage < stages; ++stage) {
      const double compute = near_.stages[stage].compute;
      work += compute;
      forecast.compute = std::max(forecast.compute, compute);
      add_gradients(stage, forecast);
      const Exchange exchange = exposed(stage);
      forecast.communication = std::max(forecast.communication, exchange.sum);
      forecast.hidden_communication =
          std::max(forecast.hidden_communication, exchange.hidden);
      forecast.host = std::max(forecast.host, added_starts(stage, exchange));
    }
    forecast.bubble =
        forecast.compute * static_cast<double>(stages - 1) / micro_batches_;
    forecast.compute += request_.seconds_beside_layers;
    forecast.ideal_seconds =
        work / static_cast<double>(stages) + request_.seconds_beside_layers;
    if (request_.is_on_cards) {
      const double start = longest_start();
      forecast.compute = std::max(forecast.compute, start);
      forecast.ideal_seconds = std::max(forecast.ideal_seconds, start);
    }
    if (ranks() > 1) add_costs_of_ranks(forecast);
    if (request_.loaded_images_per_second > 0) {
      const double loading =
          static_cast<double>(request_.step.global_batch_size) /
          static_cast<double>(machines_.number) /
          request_.loaded_images_per_second;
      forecast.input = std::max(0.0, loading - forecast.seconds());
    }
    return forecast;
  }

 private:
  struct Exchange {
    double sum = 0;     // seconds not overlapped with compute
    double hidden = 0;  // seconds overlapped with backward
    double number = 0;  // sums and gathers that the host starts
  };

  StepEstimate estimate_with(const Link& link) const {
    TimeRequest step = request_.step;
    step.device = {.work_per_second = 1,
                   .sums = link,
                   .messages = request_.is_on_cards
                                   ? slower_of(link, kMessagesOfCards)
                                   : link,
                   .is_card = request_.is_on_cards};
    return estimate_step(step);
  }

  double blocks_of(size_t stage) const {
    double blocks = 0;
    for (size_t i = begin_of(stage); i < end_of(stage); ++i) {
      blocks += static_cast<double>(request_.step.layers[i].norm_layers);
    }
    return blocks;
  }
  // The host's time to start a step of a card that is alone.
  double start_of(size_t stage) const {
    return kSecondsToStartStep +
           (request_.replays_graphs
                ? 0
                : kSecondsToStartBlock * blocks_of(stage) * micro_batches_);
  }
  double longest_start() const {
    double longest = 0;
    for (size_t stage = 0; stage < plan_.stage_begins.size(); ++stage) {
      longest = std::max(longest, start_of(stage));
    }
    return longest;
  }
  // How much longer the stage's step takes with other replicas because both the
  // host and the card have more to do; the longer of the two counts.
  double added_starts(size_t stage, const Exchange& exchange) const {
    if (!request_.is_on_cards || replicas() == 1) return 0;
    const double compute =
        near_.stages[stage].compute + request_.seconds_beside_layers;
    const double start = start_of(stage);
    const double added = plan_.zero_stage < 2 ? 0 : blocks_of(stage);
    return std::max(compute + kSecondsOfAdditions * added,
                    start + kSecondsToStartAdditions * added * micro_batches_ +
                        kSecondsToStartSum * exchange.number) -
           std::max(compute, start);
  }
  void add_costs_of_ranks(StepForecast& forecast) const {
    const Machines hosts = hosts_of_ranks();
    forecast.communication +=
        request_.has_hierarchy ? seconds_of_sum(ranks(), kCountBytes)
                               : host_sum_seconds(hosts, ranks(), kCountBytes);
    if (cards_decide()) {
      forecast.communication += seconds_of_sum(ranks(), vote_bytes(ranks()));
    } else {
      forecast.host += host_sum_seconds(hosts, ranks(), vote_bytes(ranks()));
    }
    if (!request_.is_on_cards) return;
    const auto all = static_cast<double>(ranks());
    forecast.host +=
        (cards_decide() ? kSecondsToStartSum : kSecondsOfEnd) + kSecondsOfLine;
    forecast.communication +=
        kShareOfSums * forecast.hidden_communication +
        kSlowestForDoubling * std::log2(all) * forecast.compute;
  }

  // Whether the cards sum the reports and commit without their hosts
  // (worker/step/step_commit.h).
  bool cards_decide() const {
    return request_.is_on_cards && request_.has_hierarchy &&
           plan_.zero_stage == 0 && plan_.layout.pipeline_parallel_size == 1 &&
           plan_.layout.spatial_parallel_size == 1;
  }

  // The machines with the links that their hosts use. A measured or slow
  // network is also the network of the hosts.
  Machines hosts_of_ranks() const {
    Machines hosts = machines_;
    if (!request_.is_on_cards) return hosts;
    hosts.inside = kHostMemory;
    hosts.between = slower_of(machines_.between, kHostLink);
    return hosts;
  }

  int64_t ranks() const { return plan_.layout.world_size(); }
  int64_t replicas() const {
    return int64_t{plan_.layout.data_parallel_size} *
           plan_.layout.spatial_parallel_size;
  }

  SumTime sum_of(int64_t ranks, double bytes) const {
    SumTime time = sum_time(machines_, ranks, bytes);
    if (!request_.has_hierarchy) time.hierarchical = time.flat;
    return time;
  }
  double seconds_of_sum(int64_t ranks, double bytes) const {
    return sum_of(ranks, bytes).least();
  }

  double bytes_of(size_t layer) const {
    return static_cast<double>(request_.step.layers[layer].parameters *
                               request_.step.element_bytes);
  }
  size_t begin_of(size_t stage) const {
    return static_cast<size_t>(range_of(stage).begin);
  }
  size_t end_of(size_t stage) const {
    return static_cast<size_t>(range_of(stage).end);
  }
  plan::LayerRange range_of(size_t stage) const {
    return plan::layers_of_stage(plan_.stage_begins, stage,
                                 request_.step.layers.size());
  }
  double stage_bytes(size_t stage) const {
    double bytes = 0;
    for (size_t i = begin_of(stage); i < end_of(stage); ++i) {
      bytes += bytes_of(i);
    }
    return bytes;
  }

  void add_gradients(size_t stage, StepForecast& forecast) const {
    const auto bytes = static_cast<int64_t>(stage_bytes(stage));
    if (bytes <= forecast.gradient_bytes) return;
    forecast.gradient_bytes = bytes;
    forecast.gradient_sum = sum_of(replicas(), static_cast<double>(bytes));
  }

  // Gradient buckets of one backward. The sum of a bucket starts when backward
  // has passed its layers and the previous bucket's sum has ended; where a card
  // replays a graph, all start after it. From ZeRO 2 on each layer is a bucket
  // that is only reduced to its owner, which takes half the time of a sum, and
  // backward waits for it.
  Exchange gradients_of_backward(size_t stage) const {
    const bool is_sharded = plan_.zero_stage >= 2;
    double work = 0;
    for (size_t i = begin_of(stage); i < end_of(stage); ++i) {
      work += request_.step.layers[i].work_per_pixel;
    }
    const double backward =
        kBackwardShare * near_.stages[stage].compute / micro_batches_;
    const auto due = static_cast<double>(
        plan::bucket_bytes(static_cast<int64_t>(stage_bytes(stage))));
    double now = 0, arrived = 0, sums = 0, bucket = 0, number = 0;
    for (size_t i = end_of(stage); i-- > begin_of(stage);) {
      now += work == 0
                 ? 0
                 : backward * request_.step.layers[i].work_per_pixel / work;
      bucket += bytes_of(i);
      const bool is_due = i == begin_of(stage) || is_sharded || bucket >= due;
      if (!is_due || bucket == 0) continue;
      const double sum =
          seconds_of_sum(replicas(), bucket) / (is_sharded ? 2 : 1);
      sums += sum;
      arrived = std::max(arrived, now) + sum;
      bucket = 0;
      ++number;
    }
    const bool are_hidden =
        request_.overlaps && !is_sharded && !request_.replays_graphs;
    const double left = are_hidden ? std::max(0.0, arrived - backward) : sums;
    return {left, sums - left, number};
  }

  // Gathers of a layer's weights, each of which takes half the time of a sum:
  // one for each layer after a step, or with ZeRO 3 before its forward and its
  // backward.
  Exchange gathers_of(size_t stage) const {
    if (plan_.zero_stage == 0) return {};
    double once = 0, first = 0, number = 0;
    for (size_t i = begin_of(stage); i < end_of(stage); ++i) {
      if (bytes_of(i) == 0) continue;
      const double gather = seconds_of_sum(replicas(), bytes_of(i)) / 2;
      if (number == 0) first = gather;
      once += gather;
      ++number;
    }
    if (plan_.zero_stage < 3) return {once, 0, number};
    const double passes = 2 * micro_batches_;
    const double all = passes * once;
    const double compute = near_.stages[stage].compute;
    const double left =
        request_.overlaps ? std::max(passes * first, all - compute) : all;
    return {left, all - left, passes * number};
  }

  // Whether the ranks that share a batch-norm group are in one machine.
  bool shares_groups_nearby() const {
    const int64_t samples = request_.step.global_batch_size;
    const int64_t spatial = plan_.layout.spatial_parallel_size;
    return std::ranges::all_of(
        plan::shared_groups(plan::batch_cut(plan_, samples), samples,
                            plan::kManyCells),
        [&](const plan::SharedGroup& group) {
          return group.first_rank * spatial / machines_.cards_each ==
                 ((group.last_rank + 1) * spatial - 1) / machines_.cards_each;
        });
  }

  Exchange exposed(size_t stage) const {
    const StageTime& near = near_.stages[stage];
    const StageTime& far = far_.stages[stage];
    const bool is_image_near =
        plan_.layout.spatial_parallel_size <= machines_.cards_each;
    Exchange all;
    all.sum = (is_image_near ? near : far).image + far.maps + far.copies;
    // The host starts these sums while the card computes (added_starts).
    const auto statistics = static_cast<double>(far.num_statistics);
    all.sum += (shares_groups_nearby() ? near : far).statistics -
               (request_.is_on_cards ? statistics * kSecondsToStartSum : 0);
    if (replicas() == 1) return all;
    const double backwards = plan_.zero_stage >= 2 ? micro_batches_ : 1;
    const Exchange gradients = gradients_of_backward(stage);
    const Exchange gathers = gathers_of(stage);
    all.sum += backwards * gradients.sum + gathers.sum;
    all.hidden = backwards * gradients.hidden + gathers.hidden;
    all.number = statistics + backwards * gradients.number + gathers.number;
    return all;
  }

  const ForecastRequest& request_;
  const plan::Plan& plan_;
  const Machines& machines_;
  // Each stage's exchanges, over the link inside a machine and over the network
  // between machines.
  const StepEstimate near_;
  const StepEstimate far_;
  const double micro_batches_;
};

}  // namespace

SumTime sum_time(const Machines& machines, int64_t ranks, double bytes) {
  if (ranks == 1) return {};
  const int64_t each = std::min(ranks, machines.cards_each);
  const int64_t spanned =
      std::min(machines.number, divided_up(ranks, machines.cards_each));
  const auto n = static_cast<double>(ranks);
  if (spanned == 1) {
    const double inside = ring(n, bytes, machines.inside);
    return {inside, inside};
  }
  SumTime time;
  time.flat = ring(n, bytes,
                   each == 1 ? machines.between
                             : slower_of(machines.inside, machines.between));
  const auto g = static_cast<double>(each);
  const auto k = static_cast<double>(spanned);
  Link share = machines.between;
  share.bytes_per_second /= g;
  time.hierarchical =
      (each == 1 ? 0 : ring(g, bytes, machines.inside)) +
      std::min(ring(k, bytes / g, share), tree(k, bytes / g, share));
  return time;
}

double host_sum_seconds(const Machines& machines, int64_t ranks, double bytes) {
  const int64_t each = std::min(ranks, machines.cards_each);
  const int64_t spanned =
      std::min(machines.number, divided_up(ranks, machines.cards_each));
  double seconds = 0;
  if (each > 1) {
    // The ranks of a machine meet twice. Its first rank reads what the others
    // wrote, and each of them reads the sum.
    seconds +=
        messages(2, static_cast<double>(each + 1) * bytes, machines.inside);
  }
  // The network of a single machine may have no rate.
  if (spanned == 1) return seconds;
  const auto k = static_cast<uint64_t>(spanned);
  const int hops = std::bit_width(k) - 1 + (std::has_single_bit(k) ? 0 : 2);
  return seconds + messages(hops, hops * bytes, machines.between);
}

StepForecast forecast_step(const ForecastRequest& request) {
  return Forecaster(request).run();
}

}  // namespace headroom::predict
