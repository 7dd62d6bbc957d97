#include "deploy/cli/plan/plan_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "configs/yaml/strict_yaml.h"
#include "deploy/cli/plan/plan_prices.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/plan_time.h"
#include "parallel/predict/label_bound.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Assumed for shared memory between processes on a current server CPU.
constexpr predict::Link kSharedMemory{.bytes_per_second = 1e9,
                                      .latency_seconds = 2e-4};

Error bad_flag(const std::string& what, const std::string& remedy) {
  return Error("command line", what, remedy);
}

std::optional<double> positive_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && *end == '\0' && std::isfinite(value);
  return is_number && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> measured_rate(const CommandLine& line) {
  if (!line.has("--images-per-second")) return std::nullopt;
  const std::string given = line.value_of("--images-per-second");
  const auto rate = positive_number(given);
  if (!rate) {
    throw bad_flag("--images-per-second " + given + " is no rate",
                   "write what one card alone trains, for example 412.5");
  }
  return rate;
}

// Reads a run's measurement from its folder, or from the given file.
predict::Link network_of_run(const fs::path& given) {
  std::error_code error;
  const fs::path file =
      fs::is_directory(given, error) ? given / run_files::kPlan : given;
  const auto rates = plan::network_from_json(text_or_none(file), file.string());
  if (!rates) {
    throw bad_flag("--network " + given.string() + ": " + file.string() +
                       " has no measured network, as of a run on one machine",
                   "write Gbit/s and milliseconds, for example 9.4,0.08");
  }
  return {.bytes_per_second = rates->slowest_bytes_per_second,
          .latency_seconds = rates->latency_seconds};
}

// Parses "GBIT", "GBIT,MS", or the path of a run.
predict::Link measured_network(const std::string& given) {
  std::error_code none;
  if (fs::exists(given, none)) return network_of_run(given);
  const size_t comma = given.find(',');
  const auto rate = positive_number(given.substr(0, comma));
  const auto delay = comma == std::string::npos
                         ? std::optional(1e3 * planner::kNetworkLatency)
                         : positive_number(given.substr(comma + 1));
  if (!rate || !delay) {
    throw bad_flag("--network " + given + " is no rate",
                   "write Gbit/s and milliseconds, for example 9.4,0.08");
  }
  return {.bytes_per_second = *rate * 1e9 / 8, .latency_seconds = *delay / 1e3};
}

predict::Link link_inside(const std::optional<PlanMachines>& machines,
                          bool is_on_cards) {
  if (!machines && !is_on_cards) return kSharedMemory;
  return planner::link_inside(
      machines ? machines->instance.value_or(configs::Instance())
               : configs::Instance());
}

// The link between machines from the catalogue, used without --network. Refuses
// several machines if the catalogue does not have the link's speed.
predict::Link link_between(const std::optional<PlanMachines>& machines,
                           int64_t number) {
  const configs::Instance instance =
      machines ? machines->instance.value_or(configs::Instance())
               : configs::Instance();
  if (number > 1 && instance.network_gigabits_per_second == 0) {
    throw bad_flag("nothing says how fast the network between " +
                       counted(number, "machine") + " is",
                   "give --network GBIT,MS, for example --network 9.4,0.08");
  }
  return planner::link_between(instance);
}

predict::Machines machines_for(const CommandLine& line,
                               const std::optional<PlanMachines>& machines,
                               int64_t ranks, bool is_on_cards) {
  predict::Machines all;
  const bool is_cluster = machines && machines->flag == "--cluster";
  if (is_cluster) all.number = machines->nodes;
  if (line.has("--machines")) {
    const std::string given = line.value_of("--machines");
    const auto number = parse_whole(given, 1, ranks);
    if (is_cluster || !number || ranks % *number != 0) {
      throw bad_flag(
          "--machines " + given +
              (is_cluster ? ": --cluster says how many there are"
                          : ": " + counted(ranks, "process") +
                                " cannot be shared out evenly over them"),
          "leave it out, or name a number that divides the processes");
    }
    all.number = *number;
  }
  all.cards_each = ranks / all.number;
  all.inside = link_inside(machines, is_on_cards);
  all.between = line.has("--network")
                    ? measured_network(line.value_of("--network"))
                    : link_between(machines, all.number);
  return all;
}

// Writes at least three digits: "2720", "93.1", "0.0214".
std::string figure(double value) {
  if (value < 1) return significant_text(value, 3);
  return fixed_text(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}
std::string milliseconds(double seconds) {
  return figure(1e3 * seconds) + " ms";
}
std::string part_text(double part) { return fixed_text(100 * part, 0) + " %"; }
std::string gigabits(const predict::Link& link) {
  return figure(link.bytes_per_second * 8 / 1e9) + " Gbit/s, " +
         significant_text(1e3 * link.latency_seconds, 2) + " ms";
}

std::string card_text(const PlanForecast& forecast) {
  if (const auto& rate = forecast.basis.images_per_second) {
    return forecast.card + ": " + figure(*rate) +
           " images/s alone, as --images-per-second says";
  }
  const planner::CardSpeed& card = forecast.basis.card;
  const std::string rates =
      part_text(planner::kFlopsShare / card.time_scale) + " of " +
      fixed_text(card.flops_per_second / 1e12, 0) + " TFLOP/s, " +
      part_text(planner::kBytesShare / card.time_scale) + " of " +
      fixed_text(card.bytes_per_second / 1e9, 0) + " GB/s, and " +
      milliseconds(card.seconds_beside_layers) + " a step";
  if (!card.measured.empty()) {
    return forecast.card + ", measured " + card.measured + ": " + rates;
  }
  return forecast.card + ", assumed: " + rates +
         (card.peaks_of.empty() ? "" : ", as " + card.peaks_of) +
         (card.are_peaks_assumed ? "; the peaks are not from a data sheet"
                                 : "") +
         "; --images-per-second N takes a measured rate, and --measure "
         "measures a card of this machine";
}

// Where the speed of a card comes from.
std::string source_of(const PlanForecast& forecast) {
  const planner::CardSpeed& card = forecast.basis.card;
  if (forecast.basis.images_per_second) return "its rate alone is as given";
  return planner::source_text(card) +
         (card.measured.empty() && card.are_peaks_assumed
              ? ", from peaks that are not of a data sheet"
              : "");
}

std::string links_text(const PlanForecast& forecast) {
  const predict::Machines& machines = forecast.basis.machines;
  std::string text;
  if (machines.cards_each > 1) {
    text += "inside a machine " +
            figure(machines.inside.bytes_per_second / 1e9) + " GB/s, assumed";
  }
  if (machines.number > 1) {
    text +=
        std::string(text.empty() ? "" : "; ") + "between " +
        counted(machines.number, "machine") + " " + gigabits(machines.between) +
        (forecast.is_link_measured ? ", one TCP connection's as --network says"
                                   : ", assumed");
  }
  return text;
}

// How the gradients are summed, and the reason for this choice.
std::string sum_text(const PlanForecast& forecast) {
  const predict::StepForecast& step = forecast.step;
  const predict::SumTime& sum = step.gradient_sum;
  std::string text = format_bytes(step.gradient_bytes) + " of gradients take ";
  if (!sum.prefers_hierarchy()) {
    return text + milliseconds(sum.flat) + " in one ring of all";
  }
  const int64_t cards = forecast.basis.machines.cards();
  return cat(
      text, milliseconds(sum.hierarchical),
      forecast.basis.machines.cards_each > 1
          ? " summed inside a machine, between machines, then inside, as "
            "NCCL does"
          : " summed along a tree of machines, as NCCL does",
      ": a ring of all would take ", milliseconds(sum.flat), ", with ",
      2 * (cards - 1), " messages one after the other");
}

}  // namespace

std::optional<PlanForecast> forecast_of(
    const CommandLine& line, const std::optional<PlanMachines>& machines,
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers,
    const planner::CardSpeed& card) {
  PlanForecast forecast;
  planner::ForecastBasis& basis = forecast.basis;
  basis.images_per_second = measured_rate(line);
  basis.card = card;
  // If the speed of the network is unknown, the plan has no forecast.
  const bool is_link_known =
      !machines || machines->nodes <= 1 || line.has("--network") ||
      (machines->instance &&
       machines->instance->network_gigabits_per_second > 0);
  if (!is_link_known && !basis.images_per_second) return std::nullopt;
  if (!basis.images_per_second && !card.is_known()) {
    for (const char* flag : {"--network", "--machines"}) {
      if (!line.has(flag)) continue;
      throw bad_flag(std::string(flag) +
                         " is for a forecast, but no speed of "
                         "a card is known",
                     "give --images-per-second N, what one trains alone");
    }
    return std::nullopt;
  }
  const bool is_on_cards = computes_on_cards(config.device);
  basis.machines =
      machines_for(line, machines, plan.layout.world_size(), is_on_cards);
  forecast.card = !card.name.empty() ? card.name
                  : is_on_cards      ? "card"
                                     : "process";
  if (machines && machines->instance) {
    basis.cores_each = machines->instance->cores;
  }
  forecast.step = planner::plan_forecast(config, plan, layers, basis);
  forecast.images = config.global_batch_size;
  forecast.is_link_measured = line.has("--network");
  forecast.loaded_images_per_second =
      planner::loaded_images_per_second(config, layers, basis);
  return forecast;
}

namespace {

// Adds the price of all planned machines or cards by the list of --prices.
void add_price(const std::vector<PricedMachine>& prices,
               const std::optional<PlanMachines>& machines, PlanRun& run) {
  if (prices.empty()) return;
  if (!machines || !machines->instance) {
    run.without_price = "these machines";
    return;
  }
  const std::string& name = machines->instance->name;
  const auto found = std::ranges::find(prices, name, &PricedMachine::name);
  if (found == prices.end()) {
    run.without_price = name;
    return;
  }
  const int64_t number =
      machines->is_card() ? machines->num_gpus() : machines->nodes;
  run.price_per_hour = found->price_per_hour * static_cast<double>(number);
}

}  // namespace

std::optional<PlanRun> run_of(const CommandLine& line,
                              const std::optional<PlanMachines>& machines,
                              const configs::RunConfig& config,
                              const std::vector<layers::LayerCost>& layers,
                              const std::optional<PlanForecast>& forecast) {
  // A wrong list is refused also where it is not needed, because the speed of a
  // card or the number of images is unknown.
  std::vector<PricedMachine> prices;
  if (line.has("--prices")) prices = prices_named_in(line);
  const std::optional<int64_t> given = images_given(line);
  if (!forecast) {
    if (given && !line.has("--prices")) {
      throw bad_flag(
          "--images is for the time of a run, but no speed of a card is known",
          "name machines with --cluster or --gpu, or give --images-per-second "
          "N, what one trains alone");
    }
    return std::nullopt;
  }
  const int64_t images = images_of_epoch(
      given, predict::label_bound(config).statistics.num_images(),
      /*is_needed=*/false);
  if (images == 0) return std::nullopt;
  PlanRun run{planner::run_forecast(config, layers, forecast->basis,
                                    forecast->step, images)};
  add_price(prices, machines, run);
  return run;
}

std::string run_sentence(const PlanRun& run) {
  const planner::RunForecast& time = run.time;
  std::string text = cat(
      time.epochs == std::floor(time.epochs)
          ? counted(static_cast<int64_t>(time.epochs), "epoch")
          : significant_text(time.epochs, 4) + " epochs",
      " of ", counted(time.images, "image"), " take ",
      format_seconds(time.seconds()), " at ", figure(time.images_per_second()),
      " images/s: training ", format_seconds(time.training),
      ", waits for loaders ", format_seconds(time.loading),
      ", start and files of the first epoch ", format_seconds(time.first_epoch),
      ", validation of ", counted(time.validation_images, "image"),
      " an epoch, as assumed, ", format_seconds(time.validation),
      ", checkpoints ", format_seconds(time.checkpoints));
  if (const auto price = run.price()) {
    text += cat("; the price is ", price_text(*price), ", at ",
                price_text(*run.price_per_hour), " an hour");
  }
  if (!run.without_price.empty()) {
    text += "; the price list has no price of " + run.without_price;
  }
  return text;
}

Json run_json(const PlanRun& run) {
  const planner::RunForecast& time = run.time;
  Json json = {{"images", time.images},
               {"epochs", time.epochs},
               {"steps", time.steps},
               {"hours", time.seconds() / 3600},
               {"images_per_second", time.images_per_second()},
               {"training_seconds", time.training},
               {"loading_seconds", time.loading},
               {"first_epoch_seconds", time.first_epoch},
               {"validation_images", time.validation_images},
               {"validation_seconds", time.validation},
               {"checkpoint_seconds", time.checkpoints}};
  if (run.price_per_hour) {
    json["price_per_hour"] = *run.price_per_hour;
    json["price"] = *run.price();
  }
  return json;
}

std::string forecast_verdict(const PlanForecast& forecast) {
  const int64_t cards = forecast.basis.machines.cards();
  const double rate = forecast.images_per_second();
  return fixed_text(rate, rate < 10 ? 1 : 0) + " images/s, " +
         part_text(forecast.step.efficiency()) + " of what " +
         counted(cards, forecast.card == "process" ? "process" : "card") +
         " could compute; a step takes " +
         milliseconds(forecast.step.seconds()) + ", as predicted; " +
         source_of(forecast);
}

std::string forecast_text(const PlanForecast& forecast) {
  const predict::StepForecast& step = forecast.step;
  const auto part = [&](const std::string& name, double seconds,
                        const std::string& note) {
    return std::vector<std::string>{name, milliseconds(seconds),
                                    part_text(seconds / step.seconds()), note};
  };
  const std::string input =
      forecast.loaded_images_per_second == 0
          ? "loaders are not counted"
          : "the loaders of a machine make " +
                fixed_text(forecast.loaded_images_per_second, 0) +
                " images/s, assumed; more threads: --workers";
  std::string text = cat(
      "Forecast of a step of ", forecast.images, " images\n",
      text_table({part("compute", step.compute, card_text(forecast)),
                  part("communication", step.communication,
                       "exposed; " + milliseconds(step.hidden_communication) +
                           " more go on beside backward"),
                  part("host", step.host,
                       "starts sums, sums reports and votes; assumed"),
                  part("bubble", step.bubble, "a pipeline fills and drains"),
                  part("input", step.input, input)}));
  const std::string links = links_text(forecast);
  if (!links.empty()) {
    text += "  links: " + links + "\n  " + sum_text(forecast) + "\n";
  }
  return text;
}

Json forecast_json(const PlanForecast& forecast) {
  const predict::StepForecast& step = forecast.step;
  const predict::Machines& machines = forecast.basis.machines;
  Json json = {
      {"images_per_second", forecast.images_per_second()},
      {"efficiency", step.efficiency()},
      {"step_seconds", step.seconds()},
      {"compute_seconds", step.compute},
      {"communication_seconds", step.communication},
      {"host_seconds", step.host},
      {"bubble_seconds", step.bubble},
      {"input_seconds", step.input},
      {"hidden_communication_seconds", step.hidden_communication},
      {"machines", machines.number},
      {"cards_each", machines.cards_each},
      {"is_rate_measured", forecast.basis.images_per_second.has_value()},
      {"card", forecast.card},
      {"card_measured", forecast.basis.card.measured},
      {"are_peaks_assumed", !forecast.basis.images_per_second &&
                                forecast.basis.card.are_peaks_assumed},
      {"is_network_measured", forecast.is_link_measured},
      {"gradient_bytes", step.gradient_bytes},
      {"flat_sum_seconds", step.gradient_sum.flat},
      {"hierarchical_sum_seconds", step.gradient_sum.hierarchical},
      {"sum", step.gradient_sum.prefers_hierarchy() ? "hierarchical" : "flat"}};
  if (machines.number > 1) {
    json["network_bytes_per_second"] = machines.between.bytes_per_second;
    json["network_latency_seconds"] = machines.between.latency_seconds;
  }
  return json;
}

}  // namespace headroom::cli
