// Forecasts a run's steps (parallel/predict/forecast.h): the time of a plan's
// layers on a card, from measured or assumed speed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/forecast.h"

namespace headroom::planner {

// Speeds published by the card's maker.
struct CardSpeed {
  double flops_per_second = 0;  // 16-bit tensor cores, dense
  double bytes_per_second = 0;  // memory bandwidth
};

// The shares of that speed that training is assumed to reach.
inline constexpr double kFlopsShare = 0.4;
inline constexpr double kBytesShare = 0.6;
// Assumed seconds of a step on a card outside its layers: loss, optimizer, and
// launches that nothing hides.
inline constexpr double kSecondsBesideLayers = 2e-3;
// Mosaic samples of 640 px from JPEG files per second on one processor core
// (benchmark_loader).
inline constexpr double kSamplesPerCore = 80;

struct ForecastBasis {
  predict::Machines machines;
  // Measured images per second of one card or process alone with its share of
  // this batch. If empty, `card` is used.
  std::optional<double> images_per_second;
  CardSpeed card;
  int64_t cores_each = 0;  // per machine; 0 if loaders are never the limit
};

// REQUIRES: a plan that choose_plan() gave for `config` and these layers; one
// card per rank; a measured rate or the card's speed.
predict::StepForecast plan_forecast(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const ForecastBasis& basis);

// Images per second that a machine's loaders make; 0 if they are not counted,
// as with --synthetic-input.
double loaded_images_per_second(const configs::RunConfig& config,
                                const std::vector<layers::LayerCost>& layers,
                                const ForecastBasis& basis);

}  // namespace headroom::planner
