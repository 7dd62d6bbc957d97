// The speed of a run in `headroom plan`: the forecast of a step
// (parallel/predict/forecast.h) on the planned machines, as text and as JSON.
// The output distinguishes measurements from assumptions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/plan/plan_machines.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_time.h"

namespace headroom::cli {

struct PlanForecast {
  planner::ForecastBasis basis;
  predict::StepForecast step;
  int64_t images = 0;  // images of one step
  std::string card;    // "NVIDIA H100 80GB", "card"; "process" on a CPU
  bool is_link_measured = false;
  // What the loaders of one machine supply; 0 if loaders are not considered.
  double loaded_images_per_second = 0;

  double images_per_second() const {
    return static_cast<double>(images) / step.seconds();
  }
};

// Returns nullopt if the speed of a card is unknown: `card` is, and there is no
// --images-per-second. Throws Error (exit 2) if --images-per-second, --network
// or --machines are wrong or have no effect.
std::optional<PlanForecast> forecast_of(
    const CommandLine& line, const std::optional<PlanMachines>& machines,
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers,
    const planner::CardSpeed& card);

// What the whole run takes, and costs.
struct PlanRun {
  planner::RunForecast time;
  // Of all machines or cards together, from --prices; nullopt if it has none.
  std::optional<double> price_per_hour = {};
  // The machine or card whose price the list lacks; "" if there is no list.
  std::string without_price = {};

  std::optional<double> price() const {
    if (!price_per_hour) return std::nullopt;
    return time.seconds() / 3600 * *price_per_hour;
  }
};

// Returns nullopt without a forecast, or if the number of images is unknown:
// there is neither --data nor --images. Throws Error (exit 2) if --images is
// wrong or has no effect, or if the price list is wrong.
std::optional<PlanRun> run_of(const CommandLine& line,
                              const std::optional<PlanMachines>& machines,
                              const configs::RunConfig& config,
                              const std::vector<layers::LayerCost>& layers,
                              const std::optional<PlanForecast>& forecast);

// "100 epochs of 118287 images take 5h12m, 630 images/s: ...".
std::string run_sentence(const PlanRun& run);
nlohmann::ordered_json run_json(const PlanRun& run);

// "51200 images/s, 93 % of what 64 cards compute; a step takes 20 ms", and
// where the speed of a card comes from.
std::string forecast_verdict(const PlanForecast& forecast);
// The parts of a step, with the measurements and assumptions behind them.
std::string forecast_text(const PlanForecast& forecast);
nlohmann::ordered_json forecast_json(const PlanForecast& forecast);

}  // namespace headroom::cli
