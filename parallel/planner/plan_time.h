// Predicts the time of a plan's steps: to compare candidate plans (plan_time),
// and for machines that need not exist (plan_forecast).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/cluster_catalogue.h"
#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"
#include "parallel/predict/forecast.h"
#include "parallel/predict/time_model.h"

namespace headroom::planner {

// The work of a layer's forward and backward under a policy, in the unit of
// configs/layers/layer_cost.h.
double layer_work(const layers::LayerCost& layer,
                  plan::ActivationPolicy policy);

// layer_work() in a unit that fits the run's device: on cards, seconds.
double planned_work(const configs::RunConfig& config,
                    const layers::LayerCost& layer,
                    plan::ActivationPolicy policy, const CardSpeed& card);

// Predicts a step's time (parallel/predict/time_model.h), assuming that each
// rank is a core of a current server processor, or `model.card`, and that all
// ranks are on one host, or connected by the run's network if its speed was
// measured. REQUIRES: a plan that the planner accepted for `config`.
predict::StepEstimate plan_time(const configs::RunConfig& config,
                                const plan::Plan& plan,
                                const ModelOnCard& model);

// The time of such a step if `ranks` ranks with `threads` threads each share
// `cores` cores. More processes than cores gain nothing: a rank computes with
// at most its share of the cores, and its exchanges keep at most one core busy.
// For pipelines with more ranks than cores this is too long, because a stage
// that waits leaves its share to the others.
double seconds_on_cores(const predict::StepEstimate& step, int ranks,
                        int64_t threads, int cores);

// Whether data ranks that usually do not share a machine share a batch-norm
// group, so that other layouts may be faster.
bool exchanges_far(const configs::RunConfig& config, const plan::Plan& plan);

// The cost per step of batch-norm groups that span data ranks, as text; "" if
// there are no such groups.
std::string statistics_text(const predict::StepEstimate& step);

// The links of the catalogue's machines have the published rate times the share
// that is reached in practice.

// Assumed delay of one message over an unmeasured network.
inline constexpr double kNetworkLatency = 20e-6;

// The link between two cards of a machine: its switch, else PCIe.
predict::Link link_inside(const configs::Instance& instance);

// The machine's network, with 0 bytes a second if the catalogue has no rate.
predict::Link link_between(const configs::Instance& instance);

// As many machines as `ranks` ranks need, with one card for each rank.
// REQUIRES: ranks >= 1; the ranks fill whole machines, or fit in one machine.
predict::Machines machines_of(const configs::Instance& instance, int64_t ranks);

// The seconds that the layers take for one image of the run on this card,
// without recomputation.
double layer_seconds(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     const CardSpeed& card);

// How many mosaic samples of 640 px one processor core makes from JPEG files
// per second (benchmark_loader).
inline constexpr double kSamplesPerCore = 80;

struct ForecastBasis {
  predict::Machines machines;
  // Images per second of one card or process that trains alone on its share of
  // this batch, as the user measured it. If empty, `card` is used.
  std::optional<double> images_per_second;
  CardSpeed card;
  // cores per machine; 0 if loaders never limit the speed
  int64_t cores_each = 0;
};

// REQUIRES: a plan that choose_plan() returned for `config` and these layers;
// one card per rank; a measured rate or the card's speed.
predict::StepForecast plan_forecast(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const ForecastBasis& basis);

// Images per second that a machine's loaders can supply; 0 if loaders are not
// considered, as with --synthetic-input.
double loaded_images_per_second(const configs::RunConfig& config,
                                const std::vector<layers::LayerCost>& layers,
                                const ForecastBasis& basis);

// A whole run: what its steps, its epochs' ends and its start take. Only the
// steps are computed from a step's forecast; the other rates are rough.
struct RunForecast {
  int64_t images = 0;  // of an epoch
  int64_t steps = 0;
  double epochs = 0;              // not whole if --max-steps ends the run
  int64_t validation_images = 0;  // of an epoch; assumed
  // Parts of the time, in seconds.
  double training = 0;     // steps that wait for no loader
  double loading = 0;      // waits for loaders after the first epoch
  double first_epoch = 0;  // start, and waits for loaders that read all files
  double validation = 0;
  double checkpoints = 0;
  double seconds() const {
    return training + loading + first_epoch + validation + checkpoints;
  }
  // Of the training set, over the whole time.
  double images_per_second() const {
    return epochs * static_cast<double>(images) / seconds();
  }
};

// REQUIRES: images >= 1; `step` is plan_forecast()'s answer to the other
// arguments.
RunForecast run_forecast(const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers,
                         const ForecastBasis& basis,
                         const predict::StepForecast& step, int64_t images);

}  // namespace headroom::planner
