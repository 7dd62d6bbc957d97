#include "deploy/cli/plan/plan_prices.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "configs/cluster_catalogue.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "deploy/cli/plan/plan_machines.h"
#include "deploy/cli/plan/plan_segments.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/time_model.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMost = 1e6;  // the largest accepted price or rate
constexpr int64_t kMostMachines = 128;
constexpr const char* kForm = "write it as p4d.24xlarge: 32.77";

double positive(const std::string& text, const std::string& what,
                const yaml::SourcePlace& place) {
  const std::optional<double> number = yaml::parse_double(text);
  if (!number || !(*number > 0) || *number > kMost) {
    yaml::refuse(place, what + " is '" + text + "'",
                 "write a number above 0, without a currency, as in 32.77");
  }
  return *number;
}

// Parses "p4d.24xlarge:2" or a card's name. The price is parsed elsewhere.
PricedMachine machine_named(const std::string& text,
                            const yaml::SourcePlace& place) {
  PricedMachine machine;
  const size_t colon = text.rfind(':');
  machine.name = text.substr(0, colon);
  if (colon != std::string::npos) {
    const auto number = parse_whole(text.substr(colon + 1), 1, kMostMachines);
    if (!number) {
      yaml::refuse(place, "'" + text + "' has no number of machines",
                   cat("write a whole number from 1 to ", kMostMachines,
                       " after the colon"));
    }
    machine.number = *number;
  }
  const auto& instances = configs::instance_catalogue();
  machine.is_card =
      std::ranges::find(instances, machine.name, &configs::Instance::name) ==
      instances.end();
  if (!machine.is_card) return machine;
  try {
    machine.name = configs::find_card(machine.name).name;
  } catch (const Error&) {
    std::string nearest;
    try {
      configs::find_instance(machine.name);
    } catch (const Error& error) {
      nearest = error.remedy();
    }
    yaml::refuse(
        place,
        "the catalogue has no machine and no card '" + machine.name + "'",
        nearest);
  }
  return machine;
}

// Refuses a name that appears twice.
class Names {
 public:
  void add(const std::string& name, const yaml::SourcePlace& place) {
    if (known_.insert(name).second) return;
    yaml::refuse(place, "'" + name + "' has a price already", "leave one");
  }

 private:
  std::set<std::string> known_;
};

std::vector<PricedMachine> parse_yaml_prices(const std::string& text,
                                             const std::string& file) {
  static const std::array<std::string, 2> kKeys = {"price",
                                                   "images_per_second"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  if (root.kind != yaml::YamlValue::Kind::kMapping || root.entries.empty()) {
    yaml::refuse({file, 1, 1}, "there are no prices", kForm);
  }
  std::vector<PricedMachine> machines;
  Names names;
  for (const yaml::YamlEntry& entry : root.entries) {
    PricedMachine machine = machine_named(entry.key, entry.key_place);
    names.add(entry.key, entry.key_place);
    const yaml::YamlValue* price = &entry.value;
    if (price->kind == yaml::YamlValue::Kind::kMapping) {
      yaml::require_mapping(entry.value, "a machine's price", kKeys);
      price = &yaml::require(entry.value, "price");
      if (const auto* speed = entry.value.find("images_per_second")) {
        machine.images_per_second =
            positive(yaml::as_text(*speed, "images_per_second"),
                     "images_per_second", speed->place);
      }
    }
    if (price->kind != yaml::YamlValue::Kind::kScalar) {
      yaml::refuse(
          price->kind == yaml::YamlValue::Kind::kNull ? entry.key_place
                                                      : price->place,
          "the price of " + entry.key + " is " + yaml::describe(*price), kForm);
    }
    machine.price_per_hour =
        positive(price->scalar, "the price of " + entry.key, price->place);
    machines.push_back(std::move(machine));
  }
  return machines;
}

// One cell of a CSV line, with its position.
struct Cell {
  std::string text;
  yaml::SourcePlace place;
};

// REQUIRES: the line has no quotation marks.
std::vector<Cell> cells_of(const std::string& line, const std::string& file,
                           int number) {
  std::vector<Cell> cells;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(',', begin), line.size());
    size_t first = begin, last = end;
    while (first < last && line[first] == ' ') ++first;
    while (last > first && line[last - 1] == ' ') --last;
    cells.push_back({line.substr(first, last - first),
                     {file, number, static_cast<int>(first) + 1}});
    begin = end + 1;
  }
  return cells;
}

std::vector<PricedMachine> parse_csv_prices(const std::string& text,
                                            const std::string& file) {
  std::vector<PricedMachine> machines;
  Names names;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    const size_t quote = line.find('"');
    if (quote != std::string::npos) {
      yaml::refuse({file, number, static_cast<int>(quote) + 1},
                   "a quotation mark stands here",
                   "write names and numbers without");
    }
    const std::vector<Cell> cells = cells_of(line, file, number);
    if (cells.size() < 2 || cells.size() > 3) {
      yaml::refuse(cells.front().place,
                   "the line has " + counted(std::ssize(cells), "cell"),
                   "write NAME,PRICE or NAME,PRICE,IMAGES_PER_SECOND");
    }
    const bool is_heading =
        machines.empty() &&
        (cells[1].text == "price" || cells[1].text == "price_per_hour");
    if (is_heading) continue;
    PricedMachine machine = machine_named(cells[0].text, cells[0].place);
    names.add(cells[0].text, cells[0].place);
    machine.price_per_hour = positive(
        cells[1].text, "the price of " + cells[0].text, cells[1].place);
    if (cells.size() == 3 && !cells[2].text.empty()) {
      machine.images_per_second =
          positive(cells[2].text, "images_per_second", cells[2].place);
    }
    machines.push_back(std::move(machine));
  }
  if (machines.empty()) {
    yaml::refuse({file, 1, 1}, "there are no prices",
                 "write lines of NAME,PRICE");
  }
  return machines;
}

}  // namespace

std::vector<PricedMachine> parse_prices(const std::string& text,
                                        const std::string& file) {
  return file.ends_with(".csv") ? parse_csv_prices(text, file)
                                : parse_yaml_prices(text, file);
}

std::vector<PricedMachine> prices_named_in(const CommandLine& line) {
  const std::string file = line.value_of("--prices");
  return parse_prices(yaml::read_config_file(file, "plan"), file);
}

double PricedPlan::price_per_gibibyte() const {
  const double gibibytes = static_cast<double>(num_gpus * gpu_memory_bytes) /
                           static_cast<double>(int64_t{1} << 30);
  return price_per_hour() / gibibytes;
}

std::optional<double> PricedPlan::epoch_seconds(int64_t images) const {
  if (!machine.images_per_second || !refusal.empty()) return std::nullopt;
  return static_cast<double>(images) / *machine.images_per_second;
}

std::optional<double> PricedPlan::epoch_price(int64_t images) const {
  const std::optional<double> seconds = epoch_seconds(images);
  if (!seconds) return std::nullopt;
  return *seconds / 3600 * price_per_hour();
}

void rank_by_price(std::vector<PricedPlan>& plans, int64_t images) {
  std::ranges::stable_sort(plans, {}, [&](const PricedPlan& plan) {
    if (!plan.refusal.empty()) return std::pair(2, 0.0);
    if (const auto price = plan.epoch_price(images)) {
      return std::pair(0, *price);
    }
    return std::pair(1, plan.price_per_gibibyte());
  });
}

namespace {

void check_beside_prices(const CommandLine& line) {
  for (const char* flag :
       {"--sweep", "--write", "--show", "--details", "--report"}) {
    if (!line.has(flag)) continue;
    throw Error("command line",
                std::string(flag) +
                    " is of one kind of machine, but --prices compares many",
                "leave one of the two out");
  }
  for (const configs::FlagUse& use : line.run_flags) {
    if (use.spelling != "--device" ||
        parse_device_list(use.values.front()).empty()) {
      continue;
    }
    throw Error("command line",
                "--device names this machine's GPUs, and --prices others",
                "give one of them");
  }
}

const configs::Instance& kind_of(const PricedMachine& machine) {
  return machine.is_card ? configs::find_card(machine.name)
                         : configs::find_instance(machine.name);
}

// The request for one machine of the list, instead of the command's machine.
CommandLine line_for(CommandLine line, const PricedMachine& machine) {
  for (const char* flag : {"--cluster", "--gpu", "--gpu-memory"}) {
    line.command_flags.erase(flag);
  }
  line.command_flags[machine.is_card ? "--gpu" : "--cluster"] =
      cat(machine.name, ":", machine.number);
  return line;
}

// The facts of the data set, once they have been read.
struct KnownCounts {
  bool is_asked = false;
  std::string counts, value_range;
};

// Reads the data set once, for any number of machines.
AskData asked_once(const AskData& ask, KnownCounts& known) {
  return [&ask, &known](configs::RunConfig& config, WantedFacts wanted) {
    if (!known.is_asked) {
      ask(config, wanted);
      known = {.is_asked = true,
               .counts = config.label_counts,
               .value_range = config.value_range};
    }
    config.label_counts = known.counts;
    config.value_range = known.value_range;
  };
}

// Whether the run fits, and its memory. Equal for all machines with the same
// number of GPUs, card and link.
struct Fit {
  std::string refusal;
  int64_t predicted_peak_bytes = 0;
  int64_t images = 0;  // images of the data set; 0 without a data set
};

Fit fit_of(const CommandLine& line, const PlanMachines& machines,
           const AskData& ask) {
  const RunRequest request = make_run_request(
      with_machines(line, machines), std::nullopt, usable_cores(), ask,
      /*must_fit=*/false, machines.elsewhere());
  Fit fit;
  fit.images = predict::label_bound(request.config).statistics.num_images();
  try {
    check_layout(machines, request.config);
  } catch (const Error& error) {
    fit.refusal = error.what();
    return fit;
  }
  const std::vector<layers::LayerCost> layers =
      planner::model_layers(request.config);
  const planner::PlanDecision decision = planner::choose_plan(
      request.config, request.expected_workers(), {layers, request.card});
  if (!decision.plan) {
    if (decision.exit_code != ExitCode::kNoPlan) {
      throw Error("plan", decision.reason, decision.remedy, decision.exit_code);
    }
    fit.refusal = decision.reason;
  } else if (!segments_fit(request.config, layers, *decision.plan,
                           machines.segment_room(*decision.plan))) {
    fit.refusal =
        "the tensors fit, but not the segments that the caching "
        "allocator cuts them from";
  } else {
    fit.predicted_peak_bytes = planner::fullest_rank_bytes(*decision.plan);
  }
  return fit;
}

}  // namespace

std::optional<int64_t> images_given(const CommandLine& line) {
  if (!line.has("--images")) return std::nullopt;
  const std::string text = line.value_of("--images");
  const auto images = parse_whole(text, 1, std::numeric_limits<int32_t>::max());
  if (!images) {
    throw Error("command line", "--images " + text + " is no number of images",
                "give a whole number of at least 1");
  }
  return images;
}

int64_t images_of_epoch(const std::optional<int64_t>& given, int64_t in_data,
                        bool is_needed) {
  if (given && in_data > 0) {
    throw Error(
        "command line",
        "--images is given, but the data set has " + counted(in_data, "image"),
        "leave one of the two out");
  }
  if (!given && in_data == 0 && is_needed) {
    throw Error("command line",
                "nobody says how many images an epoch has, whose price is "
                "asked for",
                "give --data DATA.YAML, or --images N");
  }
  return given.value_or(in_data);
}

PriceAnswer price_plans(const CommandLine& given, const AskData& ask) {
  check_beside_prices(given);
  const std::optional<int64_t> images = images_given(given);
  PriceAnswer answer;
  KnownCounts known;
  const AskData once = asked_once(ask, known);
  std::map<std::tuple<int64_t, std::string, std::string>, Fit> fits;
  int64_t in_data = 0;
  bool has_epoch_price = false;  // an epoch has a price on some machine
  for (PricedMachine& machine : prices_named_in(given)) {
    PricedPlan plan{.machine = std::move(machine)};
    const configs::Instance& kind = kind_of(plan.machine);
    plan.num_gpus = plan.machine.number * kind.gpus;
    plan.gpu_memory_bytes = kind.gpu_memory_bytes;
    plan.refusal = why_unusable(kind);
    if (plan.refusal.empty() &&
        predict::tensor_budget(kind.gpu_memory_bytes, 0) == 0) {
      plan.refusal = "a GPU of " + format_bytes(kind.gpu_memory_bytes) +
                     " has nothing left beside the reserve";
    }
    if (!plan.refusal.empty()) {
      answer.plans.push_back(std::move(plan));
      continue;
    }
    const auto key = std::tuple(plan.num_gpus, kind.gpu, kind.link);
    auto fit = fits.find(key);
    if (fit == fits.end()) {
      const CommandLine line = line_for(given, plan.machine);
      fit = fits.emplace(key,
                         fit_of(line, *machines_of(line, nvml::Nvml()), once))
                .first;
    }
    plan.refusal = fit->second.refusal;
    plan.predicted_peak_bytes = fit->second.predicted_peak_bytes;
    in_data = fit->second.images;
    has_epoch_price =
        has_epoch_price ||
        (plan.refusal.empty() && plan.machine.images_per_second.has_value());
    answer.plans.push_back(std::move(plan));
  }
  answer.images = images_of_epoch(images, in_data, has_epoch_price);
  rank_by_price(answer.plans, answer.images);
  return answer;
}

namespace {

std::string name_of(const PricedMachine& machine) {
  return machine.name + (machine.number > 1 ? cat(":", machine.number) : "");
}

using Cells = std::vector<std::vector<std::string>>;

}  // namespace

std::string price_text(double price) {
  return price >= 100 ? fixed_text(price, 2) : significant_text(price, 4);
}

std::string prices_text(const PriceAnswer& answer) {
  Cells measured = {
      {"machine", "GPUs", "of", "needs", "an hour", "an epoch", "takes"}};
  Cells unmeasured = {
      {"machine", "GPUs", "of", "needs", "an hour", "a GiB for an hour"}};
  std::string refused;
  for (const PricedPlan& plan : answer.plans) {
    if (!plan.refusal.empty()) {
      refused += "  " + name_of(plan.machine) + ": " + plan.refusal + "\n";
      continue;
    }
    std::vector<std::string> cells = {name_of(plan.machine),
                                      std::to_string(plan.num_gpus),
                                      format_bytes(plan.gpu_memory_bytes),
                                      format_bytes(plan.predicted_peak_bytes),
                                      price_text(plan.price_per_hour())};
    if (const auto price = plan.epoch_price(answer.images)) {
      cells.push_back(price_text(*price));
      cells.push_back(format_seconds(*plan.epoch_seconds(answer.images)));
      measured.push_back(std::move(cells));
    } else {
      cells.push_back(price_text(plan.price_per_gibibyte()));
      unmeasured.push_back(std::move(cells));
    }
  }
  std::string text;
  if (measured.size() > 1) {
    text += "The run fits; an epoch of " + counted(answer.images, "image") +
            " at the speeds of the price list\n" + text_table(measured);
  }
  if (unmeasured.size() > 1) {
    text += (text.empty() ? "" : "\n") +
            std::string(
                "The run fits, but no speed of these is known, so that an "
                "epoch has no price: by the price of GPU memory\n"
                "(measure images a second in a short run, and add "
                "images_per_second to the price list)\n") +
            text_table(unmeasured);
  }
  if (!refused.empty()) {
    text += (text.empty() ? "" : "\n") +
            std::string("Does not fit, or cannot train\n") + refused;
  }
  return text;
}

std::string prices_json(const PriceAnswer& answer) {
  Json json;
  json["exit_code"] = exit_code_of(answer);
  if (answer.images > 0) json["images_per_epoch"] = answer.images;
  json["machines"] = Json::array();
  for (const PricedPlan& plan : answer.plans) {
    Json entry = {{"name", plan.machine.name},
                  {"number", plan.machine.number},
                  {"gpus", plan.num_gpus},
                  {"gpu_memory_bytes", plan.gpu_memory_bytes},
                  {"price_per_hour", plan.price_per_hour()},
                  {"fits", plan.refusal.empty()}};
    if (!plan.refusal.empty()) {
      entry["reason"] = plan.refusal;
    } else {
      entry["predicted_peak_bytes"] = plan.predicted_peak_bytes;
      entry["price_per_gibibyte_hour"] = plan.price_per_gibibyte();
    }
    if (const auto price = plan.epoch_price(answer.images)) {
      entry["epoch_price"] = *price;
      entry["epoch_seconds"] = *plan.epoch_seconds(answer.images);
    }
    json["machines"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

int exit_code_of(const PriceAnswer& answer) {
  const bool any_fits = std::ranges::any_of(
      answer.plans,
      [](const PricedPlan& plan) { return plan.refusal.empty(); });
  return static_cast<int>(any_fits ? ExitCode::kDone : ExitCode::kNoPlan);
}

}  // namespace headroom::cli
