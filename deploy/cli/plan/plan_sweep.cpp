#include "deploy/cli/plan/plan_sweep.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "configs/options.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargest = 65536;  // of image sides and of batches
constexpr size_t kMostCells = 256;

[[noreturn]] void fail(const std::string& what) {
  throw Error("command line", "--sweep: " + what,
              "write it as cfg=yolov5n,yolov8n img=416,640 batch=8..64");
}

std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty()) fail("'" + text + "' has an empty value");
    words.push_back(part);
  }
  if (words.empty()) fail("'" + text + "' has no values");
  return words;
}

int64_t number_in(const std::string& text) {
  const auto number = parse_whole(text, 1, kLargest);
  if (!number) {
    fail(cat("'", text, "' is not a whole number from 1 to ", kLargest));
  }
  return *number;
}

std::vector<int64_t> values_in(const std::string& text) {
  std::vector<int64_t> values;
  for (const std::string& part : words_in(text)) {
    const size_t dots = part.find("..");
    if (dots == std::string::npos) {
      values.push_back(number_in(part));
      continue;
    }
    const int64_t last = number_in(part.substr(dots + 2));
    for (int64_t value = number_in(part.substr(0, dots)); value <= last;
         value *= 2) {
      values.push_back(value);
    }
  }
  if (values.empty()) fail("'" + text + "' has no values");
  return values;
}

}  // namespace

Sweep parse_sweep(const std::string& text, const configs::RunConfig& config) {
  Sweep sweep;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string axis = word.substr(0, equals);
    const std::string values =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    const auto set = [&](auto& axis_values, const auto& read) {
      if (!axis_values.empty()) fail(axis + " is given twice");
      axis_values = read(values);
    };
    if (equals != std::string::npos && axis == "cfg") {
      set(sweep.models, words_in);
    } else if (equals != std::string::npos && axis == "img") {
      set(sweep.image_sizes, values_in);
    } else if (equals != std::string::npos && axis == "batch") {
      set(sweep.batches, values_in);
    } else {
      fail("'" + word + "' is none of cfg=..., img=... and batch=...");
    }
  }
  if (sweep.models.empty()) sweep.models = {planner::model_of_run(config)};
  if (sweep.image_sizes.empty()) {
    sweep.image_sizes = {std::max(config.image_height, config.image_width)};
  }
  if (sweep.batches.empty()) sweep.batches = {config.global_batch_size};
  if (sweep.models.size() * sweep.image_sizes.size() * sweep.batches.size() >
      kMostCells) {
    fail(cat("more than ", kMostCells, " plans"));
  }
  return sweep;
}

void check_beside_sweep(const CommandLine& line) {
  const std::string sweep = " " + line.value_of("--sweep");
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error("command line", what, remedy);
  };
  if (line.has("--show")) {
    refuse("--show draws one plan, but --sweep makes a table of many",
           "leave one of the two out");
  }
  if (line.has("--prices")) {
    refuse("--prices compares machines for one request, but --sweep names many",
           "leave one of the two out");
  }
  for (const configs::FlagUse& use : line.run_flags) {
    const configs::Option* flag = configs::find_flag(use.spelling);
    if (flag == nullptr) continue;
    const bool is_batch = flag->key == "global_batch_size";
    const std::string axis = is_batch                      ? "batch"
                             : flag->key == "image_height" ? "img"
                             : flag->key == "cfg"          ? "cfg"
                                                           : "";
    if (axis.empty()) continue;
    if (sweep.find(" " + axis + "=") != std::string::npos) {
      refuse(use.spelling + " is given, and --sweep names values of " + axis +
                 " too",
             "leave one of the two out");
    }
    if (is_batch && use.values == std::vector<std::string>{"-1"}) {
      refuse("--batch -1 chooses one batch, but --sweep makes plans of many",
             "name batches: --sweep img=416,640,1280 batch=8..64");
    }
  }
}

namespace {

SweepCell cell_of(const configs::RunConfig& trial, int world_size,
                  const planner::ModelOnCard& model,
                  const StepSeconds& step_seconds) {
  const planner::PlanDecision decision =
      planner::choose_plan(trial, world_size, model);
  SweepCell cell;
  cell.model = planner::model_of_run(trial);
  for (const layers::LayerCost& layer : model.layers) {
    cell.parameters += layer.parameters;
  }
  cell.image_size = trial.image_height;
  cell.batch = trial.global_batch_size;
  cell.fits = decision.plan.has_value();
  cell.refusal = cell.fits ? "" : decision.reason;
  if (const auto& plan = decision.plan) {
    cell.policy = plan::activations_text(plan->activation_policies);
    cell.micro_batch = plan->micro_batch_size;
    cell.zero_stage = plan->zero_stage;
    cell.predicted_peak_bytes = planner::fullest_rank_bytes(*plan);
    if (step_seconds) {
      cell.step_seconds = step_seconds(trial, *plan, model.layers);
    }
    if (planner::shrinks_groups(trial, *plan)) {
      cell.smaller_groups = plan::group_sizes_text(trial.global_batch_size,
                                                   plan->batch_norm_rule());
    }
  }
  return cell;
}

}  // namespace

std::vector<SweepCell> sweep_plans(const configs::RunConfig& config,
                                   int world_size, const Sweep& sweep,
                                   const planner::CardSpeed& card,
                                   const StepSeconds& step_seconds) {
  std::vector<SweepCell> cells;
  for (const std::string& model : sweep.models) {
    configs::RunConfig trial = config;
    // A model that is not swept may be that of the weights.
    if (model != planner::model_of_run(config)) trial.cfg = model;
    const std::vector<layers::LayerCost> layers = planner::model_layers(trial);
    for (const int64_t size : sweep.image_sizes) {
      for (const int64_t batch : sweep.batches) {
        trial.image_height = trial.image_width = size;
        trial.global_batch_size = batch;
        cells.push_back(
            cell_of(trial, world_size, {layers, card}, step_seconds));
      }
    }
  }
  return cells;
}

namespace {

std::string outcome_of(const SweepCell& cell) {
  if (!cell.fits) return "refused: " + cell.refusal;
  return cell.smaller_groups.empty()
             ? "fits"
             : "warning: fits only in smaller batch-norm groups, of " +
                   cell.smaller_groups + " images";
}

}  // namespace

std::string sweep_text(const std::vector<SweepCell>& cells) {
  std::vector<std::vector<std::string>> table = {
      {"cfg", "parameters", "img", "batch", "predicted", "step", "activations",
       "micro-batch", "zero", ""}};
  for (const SweepCell& cell : cells) {
    const auto if_it_fits = [&cell](const std::string& text) {
      return cell.fits ? text : "-";
    };
    table.push_back(
        {cell.model, std::to_string(cell.parameters),
         std::to_string(cell.image_size), std::to_string(cell.batch),
         if_it_fits(format_bytes(cell.predicted_peak_bytes)),
         cell.step_seconds ? format_seconds(*cell.step_seconds) : "-",
         if_it_fits(cell.policy), if_it_fits(std::to_string(cell.micro_batch)),
         if_it_fits(std::to_string(cell.zero_stage)), outcome_of(cell)});
  }
  return text_table(table);
}

std::string sweep_json(const std::vector<SweepCell>& cells) {
  Json json;
  json["exit_code"] = 0;
  json["cells"] = Json::array();
  for (const SweepCell& cell : cells) {
    Json entry = {{"cfg", cell.model},
                  {"parameters", cell.parameters},
                  {"image_size", cell.image_size},
                  {"global_batch_size", cell.batch},
                  {"fits", cell.fits}};
    if (cell.fits) {
      entry["activation_policy"] = cell.policy;
      entry["micro_batch_size"] = cell.micro_batch;
      entry["zero_stage"] = cell.zero_stage;
      entry["predicted_peak_bytes"] = cell.predicted_peak_bytes;
      if (cell.step_seconds) entry["step_seconds"] = *cell.step_seconds;
      if (!cell.smaller_groups.empty()) {
        entry["smaller_batch_norm_groups"] = cell.smaller_groups;
      }
    } else {
      entry["reason"] = cell.refusal;
    }
    json["cells"].push_back(entry);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::cli
