// The forecast of a run's steps (parallel/predict/forecast.h): what a plan's
// layers take on a card, with what was measured or is assumed of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/forecast.h"

namespace headroom::planner {

// What a card's maker publishes.
struct CardSpeed {
  double flops_per_second = 0;  // 16-bit tensor cores, dense
  double bytes_per_second = 0;  // its memory's
};

// The parts of it that training is assumed to reach.
inline constexpr double kFlopsShare = 0.4;
inline constexpr double kBytesShare = 0.6;
// Seconds of a step on a card that are assumed beside its layers: the loss, the
// optimizer, launches that nothing hides.
inline constexpr double kSecondsBesideLayers = 2e-3;
// Mosaic samples of 640 px, of JPEG files, that one processor core makes in a
// second (benchmark_loader).
inline constexpr double kSamplesPerCore = 80;

struct ForecastBasis {
  predict::Machines machines;
  // Images a second that one card or process trains alone, as measured with its
  // share of this batch; else `card` says what is assumed.
  std::optional<double> images_per_second;
  CardSpeed card;
  int64_t cores_each = 0;  // one machine's; 0: loaders are never too slow
};

// REQUIRES: a plan that choose_plan() gave for `config` and these layers; as
// many cards as ranks; a measured rate, or the card's speed.
predict::StepForecast plan_forecast(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const ForecastBasis& basis);

// Images that the loaders of a machine make in a second; 0 where they are not
// counted, as with --synthetic-input.
double loaded_images_per_second(const configs::RunConfig& config,
                                const std::vector<layers::LayerCost>& layers,
                                const ForecastBasis& basis);

}  // namespace headroom::planner
