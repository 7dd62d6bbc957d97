#include "parallel/planner/plan_time.h"

#include <algorithm>
#include <cmath>

#include "configs/multi_scale.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_parts.h"

namespace headroom::planner {
namespace {

// The number of data ranks that usually share a machine, where an exchange is
// cheap.
constexpr int kNearRanks = 8;

// Assumed rates of unmeasured links. NVSwitch: nccl-tests on eight H200 sum 4
// MiB at 107 GB/s and 128 MiB at 402 GB/s; these values agree within a tenth. A
// data sheet gives the sum of both directions, twice the rate of one.
constexpr double kLinkShare = 0.9;
constexpr double kSwitchLatency = 4e-6;
constexpr predict::Link kPcie{.bytes_per_second = 12e9,
                              .latency_seconds = 10e-6};
constexpr double kNetworkShare = 0.85;

// Measured: one core takes 0.13 s for yolov5n with 16 images of 160 px. Work is
// in the unit of configs/layers/layer_cost.h. A transfer (kThroughHost) keeps
// the cores of both processes busy equally long.
constexpr double kWorkOfCore = 1.1e11;

// Counts the layer's sums over ranks and its exchanges of neighbouring rows.
void count_exchanges(const layers::LayerProgram& program,
                     predict::TimedLayer& layer) {
  for (const layers::LayerProgram::Step& step : program.steps) {
    if (step.facts.sums_channels) ++layer.norm_layers;
    for (const int64_t channel_rows : step.facts.halo_channel_rows) {
      ++layer.halo_exchanges;
      layer.halo_channel_rows += channel_rows;
    }
  }
}

plan::ActivationPolicy policy_of(const plan::Plan& plan, size_t layer) {
  return plan.activation_policies.empty() ? plan::ActivationPolicy::kKeep
                                          : plan.activation_policies[layer];
}

// Bytes read and written, forward and backward, per kept 16-bit element: a
// block reads and writes its two kept maps about 14 times.
constexpr double kBytesPerKeptElement = 14;

// Seconds that a card needs for one pixel of one image under the policy. The
// multiply-adds run at the card's speed in this precision, and backward has
// twice those of forward. The feature maps are read and written at the speed of
// the card's memory. On an H200, float32 is 3 % slower than this, TF32 1 %. A
// policy that saves memory lengthens the time by the same factor as on a
// processor core. What was measured on the card (time_scale) corrects the sum.
double seconds_on_card(const layers::LayerCost& layer,
                       plan::ActivationPolicy policy,
                       const configs::RunConfig& config,
                       const CardSpeed& card) {
  const double flops = 2 * 3 * layer.multiply_adds_per_pixel;
  const double bytes = (has_short_maps(config) ? 1 : 2) * kBytesPerKeptElement *
                       layer.kept_elements_per_pixel;
  const double kept = layer_work(layer, plan::ActivationPolicy::kKeep);
  const double leaner = kept == 0 ? 1 : layer_work(layer, policy) / kept;
  return card.time_scale * leaner *
         (flops / (kFlopsShare * card.flops_for(config)) +
          bytes / (kBytesShare * card.bytes_per_second));
}

const CardSpeed& planned_card(const CardSpeed& card) {
  static const CardSpeed usual = speed_of_card("");
  return card.is_known() ? card : usual;
}

predict::DeviceSpeed planned_speed(const configs::RunConfig& config) {
  const bool is_card = computes_on_cards(config.device);
  std::optional<predict::Link> measured;
  if (config.network) {
    measured = {.bytes_per_second = config.network->slowest_bytes_per_second,
                .latency_seconds = config.network->latency_seconds};
  }
  if (!is_card) {
    const predict::Link link = measured.value_or(predict::kThroughHost);
    return {kWorkOfCore, link, link};
  }
  const predict::Link link = measured.value_or(kPcie);
  return {.work_per_second = 1,
          .sums = link,
          .messages = predict::slower_of(link, predict::kMessagesOfCards),
          .is_card = true};
}

// The request to the time model for plan_time(), without the image size.
predict::TimeRequest time_request(const configs::RunConfig& config,
                                  const plan::Plan& plan,
                                  const ModelOnCard& model) {
  const std::vector<layers::LayerCost>& layers = model.layers;
  const CardSpeed& card = planned_card(model.card);
  predict::TimeRequest request;
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.element_bytes = config.precision == configs::Precision::kFp64 ? 8 : 4;
  request.device = planned_speed(config);
  for (size_t i = 0; i < layers.size(); ++i) {
    const layers::LayerCost& layer = layers[i];
    predict::TimedLayer part;
    part.work_per_pixel = planned_work(config, layer, policy_of(plan, i), card);
    part.parameters = layer.parameters;
    part.channels = layer.channels;
    part.stride = layer.stride;
    part.inputs = layer.inputs;
    if (layer.program != nullptr) count_exchanges(*layer.program, part);
    request.layers.push_back(part);
  }
  return request;
}

// A sample whose images are all in the loader's cache is made in this share of
// the time of one whose files are read: 183 samples a second and core beside
// kSamplesPerCore.
constexpr double kCachedShare = kSamplesPerCore / 183;
// A process's part of the cache of decoded images, if --host-memory-limit sets
// no other.
constexpr double kCacheBytes = int64_t{1} << 30;

// Assumed for a whole run: images of validation for one of training (COCO has
// 1 for 24), from the start of the programs to the first step, what an epoch's
// end takes beside validation's computing, and the rate at which a checkpoint's
// copy leaves a card, for which the steps wait.
constexpr double kValidationShare = 0.05;
constexpr double kSecondsToStart = 15;
constexpr double kSecondsOfEpochEnd = 1;
constexpr double kCheckpointBytesPerSecond = 5.5e9;
// Weights, momentum, average and accumulated gradients.
constexpr double kCopiesInCheckpoint = 4;

// Whether the decoded images of the whole data set fit into the cache that the
// processes of a machine share.
bool are_all_cached(const configs::RunConfig& config, int64_t processes,
                    int64_t images) {
  const double cache = static_cast<double>(processes) *
                       (config.host_memory_limit > 0
                            ? static_cast<double>(config.host_memory_limit)
                            : kCacheBytes);
  return static_cast<double>(3 * images * config.image_height *
                             config.image_width) <= cache;
}

// Images per second that one rank validates, in float32 as a run does: forward
// is a third of a step's work.
double validated_images_per_second(const configs::RunConfig& config,
                                   const std::vector<layers::LayerCost>& layers,
                                   const ForecastBasis& basis) {
  constexpr double kPasses = 3;
  if (!basis.card.is_known()) {
    return kPasses * *basis.images_per_second;
  }
  configs::RunConfig wide = config;
  wide.precision = configs::Precision::kFp32;
  wide.tf32 = false;
  return kPasses / layer_seconds(wide, layers, basis.card);
}

// Sets each layer's work per pixel in seconds.
void time_layers(const configs::RunConfig& config, const plan::Plan& plan,
                 const std::vector<layers::LayerCost>& layers,
                 const ForecastBasis& basis, double pixels,
                 predict::TimeRequest& request) {
  if (!basis.images_per_second) {
    for (size_t i = 0; i < layers.size(); ++i) {
      request.layers[i].work_per_pixel =
          seconds_on_card(layers[i], policy_of(plan, i), config, basis.card);
    }
    return;
  }
  double work = 0;
  for (const predict::TimedLayer& layer : request.layers) {
    work += layer.work_per_pixel;
  }
  for (predict::TimedLayer& layer : request.layers) {
    layer.work_per_pixel *= 1 / (*basis.images_per_second * work * pixels);
  }
}

}  // namespace

double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy) {
  const layers::LayerTime time = layers::layer_time(layer);
  switch (policy) {
    case plan::ActivationPolicy::kKeep:
      return time.keep;
    case plan::ActivationPolicy::kLean:
      return time.lean;
    case plan::ActivationPolicy::kRecompute:
      return time.recompute;
    case plan::ActivationPolicy::kOffload:
      return time.offload;
  }
  HEADROOM_CHECK(false, cat("activation policy ", static_cast<int>(policy)));
}

double planned_work(const configs::RunConfig& config,
                    const layers::LayerCost& layer,
                    plan::ActivationPolicy policy, const CardSpeed& card) {
  return computes_on_cards(config.device)
             ? seconds_on_card(layer, policy, config, planned_card(card))
             : layer_work(layer, policy);
}

double layer_seconds(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     const CardSpeed& card) {
  double seconds = 0;
  for (const layers::LayerCost& layer : layers) {
    seconds +=
        seconds_on_card(layer, plan::ActivationPolicy::kKeep, config, card);
  }
  return seconds * configs::mean_pixels(config, layers::largest_stride(layers));
}

predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const ModelOnCard& model) {
  const int64_t stride = layers::largest_stride(model.layers);
  predict::TimeRequest request = time_request(config, plan, model);
  // A multi-scale run uses each of its sizes equally often.
  const std::vector<configs::InputSize> sizes =
      configs::input_sizes(config, stride);
  predict::StepEstimate mean;
  for (const configs::InputSize& size : sizes) {
    request.image_height = size.height;
    request.image_width = size.width;
    const predict::StepEstimate step = predict::estimate_step(request);
    mean.compute += step.compute / static_cast<double>(sizes.size());
    mean.communication +=
        step.communication / static_cast<double>(sizes.size());
    mean.statistics += step.statistics / static_cast<double>(sizes.size());
    mean.num_statistics = step.num_statistics;
  }
  return mean;
}

double seconds_on_cores(const predict::StepEstimate& step, int ranks,
                        int64_t threads, int cores) {
  const double share = static_cast<double>(cores) / ranks;
  const auto most = static_cast<double>(std::max<int64_t>(1, threads));
  return step.compute / std::min(share, most) +
         step.communication / std::min(share, 1.0);
}

bool exchanges_far(const configs::RunConfig& config, const plan::Plan& plan) {
  return std::ranges::any_of(
      plan::shared_groups(plan::batch_cut(plan, config.global_batch_size),
                          config.global_batch_size, plan::kManyCells),
      [](const plan::SharedGroup& group) {
        return group.first_rank / kNearRanks != group.last_rank / kNearRanks;
      });
}

std::string statistics_text(const predict::StepEstimate& step) {
  if (step.num_statistics == 0) return "";
  return cat("batch-norm groups span ranks: ", step.num_statistics,
             " exchanges of statistics a step, predicted at ",
             std::lround(100 * step.statistics / step.total()),
             " % of its time");
}

predict::Link link_inside(const configs::Instance& instance) {
  if (instance.link_gigabytes_per_second == 0) return kPcie;
  return {.bytes_per_second =
              static_cast<double>(instance.link_gigabytes_per_second) * 1e9 /
              2 * kLinkShare,
          .latency_seconds = kSwitchLatency};
}

predict::Link link_between(const configs::Instance& instance) {
  return {.bytes_per_second =
              static_cast<double>(instance.network_gigabits_per_second) * 1e9 /
              8 * kNetworkShare,
          .latency_seconds = kNetworkLatency};
}

predict::Machines machines_of(const configs::Instance& instance,
                              int64_t ranks) {
  HEADROOM_CHECK(
      ranks >= 1 && (ranks <= instance.gpus || ranks % instance.gpus == 0),
      cat(ranks, " ranks on machines of ", instance.gpus));
  const int64_t number = divided_up(ranks, instance.gpus);
  HEADROOM_CHECK(number == 1 || instance.network_gigabits_per_second > 0,
                 "the network of " + instance.name + " is not known");
  return {.number = number,
          .cards_each = ranks / number,
          .inside = link_inside(instance),
          .between = link_between(instance)};
}

double loaded_images_per_second(const configs::RunConfig& config,
                                const std::vector<layers::LayerCost>& layers,
                                const ForecastBasis& basis) {
  if (config.synthetic_input || basis.cores_each == 0) return 0;
  constexpr double kPixels = 640 * 640;
  const int64_t most_threads =
      std::max<int64_t>(1, config.loader_threads) * basis.machines.cards_each;
  const auto cores =
      static_cast<double>(std::min(basis.cores_each, most_threads));
  return kSamplesPerCore * cores * kPixels /
         configs::mean_pixels(config, layers::largest_stride(layers));
}

RunForecast run_forecast(const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers,
                         const ForecastBasis& basis,
                         const predict::StepForecast& step, int64_t images) {
  RunForecast run;
  run.images = images;
  const int64_t in_epoch = divided_up(images, config.global_batch_size);
  run.steps = config.epochs * in_epoch;
  if (config.max_steps > 0) run.steps = std::min(run.steps, config.max_steps);
  run.epochs = static_cast<double>(run.steps) / static_cast<double>(in_epoch);

  // The steps of the first epoch wait for files; those after it only if the
  // cache cannot hold all images.
  const double computing = step.seconds() - step.input;
  const double loading = step.input == 0 ? 0 : step.seconds();
  const double warm = are_all_cached(config, basis.machines.cards_each, images)
                          ? kCachedShare * loading
                          : loading;
  const auto first = static_cast<double>(std::min(in_epoch, run.steps));
  const double later = static_cast<double>(run.steps) - first;
  run.training = static_cast<double>(run.steps) * computing;
  run.loading = later * std::max(0.0, warm - computing);
  run.first_epoch = kSecondsToStart + first * step.input;

  run.validation_images = std::max<int64_t>(
      1, std::llround(kValidationShare * static_cast<double>(images)));
  const auto ranks = static_cast<double>(basis.machines.cards());
  const double validated =
      ranks * validated_images_per_second(config, layers, basis);
  const double loaded = static_cast<double>(basis.machines.number) *
                        loaded_images_per_second(config, layers, basis);
  const double rate = loaded > 0 ? std::min(validated, loaded) : validated;
  const double epochs = std::ceil(run.epochs);
  run.validation =
      (config.noval ? 1 : epochs) *
      (kSecondsOfEpochEnd + static_cast<double>(run.validation_images) / rate);

  double parameters = 0;
  for (const layers::LayerCost& layer : layers) {
    parameters += static_cast<double>(layer.parameters);
  }
  const double epoch = (run.training + run.loading + run.first_epoch) / epochs;
  const double within = std::floor(
      epoch / static_cast<double>(configs::kSecondsBetweenCheckpoints));
  const double number = epochs * ((config.nosave ? 0 : 1) + within);
  run.checkpoints = number * kCopiesInCheckpoint * parameters * sizeof(float) /
                    kCheckpointBytesPerSecond;
  const double share =
      configs::validation_share(config, basis.machines.cards());
  if (share > 0) {  // short epochs are neither validated nor saved
    const double most =
        share / (1 - share) * (run.training + run.loading + run.first_epoch);
    const double kept =
        std::min(1.0, most / (run.validation + run.checkpoints));
    run.validation *= kept;
    run.checkpoints *= kept;
  }
  return run;
}

predict::StepForecast plan_forecast(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const ForecastBasis& basis) {
  const int64_t stride = layers::largest_stride(layers);
  const bool is_nccl = plan.backend == plan::Backend::kNccl;
  const bool is_on_cards = computes_on_cards(config.device);
  predict::ForecastRequest request;
  request.step = time_request(config, plan, {layers, basis.card});
  request.machines = basis.machines;
  request.overlaps = is_nccl || basis.machines.number > 1;
  request.has_hierarchy = is_nccl;
  request.is_on_cards = is_on_cards;
  request.replays_graphs = is_on_cards && config.cuda_graphs;
  request.seconds_beside_layers =
      basis.images_per_second ? 0 : basis.card.seconds_beside_layers;
  request.loaded_images_per_second =
      loaded_images_per_second(config, layers, basis);
  time_layers(config, plan, layers, basis, configs::mean_pixels(config, stride),
              request.step);
  // A multi-scale run uses each of its sizes equally often.
  const std::vector<configs::InputSize> sizes =
      configs::input_sizes(config, stride);
  const auto part = 1 / static_cast<double>(sizes.size());
  predict::StepForecast mean;
  for (const configs::InputSize& size : sizes) {
    request.step.image_height = size.height;
    request.step.image_width = size.width;
    const predict::StepForecast step = predict::forecast_step(request);
    mean.compute += part * step.compute;
    mean.communication += part * step.communication;
    mean.host += part * step.host;
    mean.bubble += part * step.bubble;
    mean.input += part * step.input;
    mean.hidden_communication += part * step.hidden_communication;
    mean.ideal_seconds += part * step.ideal_seconds;
    mean.gradient_bytes = step.gradient_bytes;
    mean.gradient_sum = step.gradient_sum;
  }
  return mean;
}

}  // namespace headroom::planner
