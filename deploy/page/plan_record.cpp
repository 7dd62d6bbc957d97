#include "deploy/page/plan_record.h"

#include <algorithm>
#include <array>
#include <utility>

#include "configs/layers/model_record.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/other_layouts.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/memory_request.h"

namespace headroom::page {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostProcesses = 64;
constexpr size_t kMostKnownTimelines = 64;
constexpr size_t kMostStages = 32;
// The message if the plan was made for a model other than the recorded one.
constexpr const char* kMismatch =
    "the run's plan and its model do not belong together";

bool belong_together(const plan::Plan& plan,
                     const std::vector<layers::LayerCost>& layers) {
  const bool has_policies = !plan.activation_policies.empty();
  return (plan.stage_begins.empty() ||
          plan.stage_begins.back() < std::ssize(layers)) &&
         (!has_policies || plan.activation_policies.size() == layers.size());
}

// Calls `compute`; returns why it failed, or "" if it succeeded.
template <typename Compute>
std::string why_not(const Compute& compute) {
  try {
    compute();
    return "";
  } catch (const Error& error) {
    return error.what();
  } catch (const CheckFailure&) {
    return kMismatch;
  }
}

}  // namespace

PlanRecord::PlanRecord(std::filesystem::path run_directory,
                       configs::RunConfig config, plan::Plan plan)
    : run_directory_(std::move(run_directory)),
      config_(std::move(config)),
      plan_(std::move(plan)) {}

std::vector<std::string> PlanRecord::lines() const {
  std::vector<std::string> lines = {
      "layout: " + plan::to_string(plan_.layout),
      "micro-batches of " + counted(plan_.micro_batch_size, "image"),
      std::string("batch-norm groups of ") +
          (plan_.even_batch_norm_groups ? "about " : "") +
          counted(plan_.batch_norm_group_size, "image")};
  if (plan_.zero_stage > 0) {
    lines.push_back(cat("ZeRO stage ", plan_.zero_stage));
  }
  lines.push_back("activations: " +
                  (plan_.activation_policies.empty()
                       ? "keep"
                       : plan::activations_text(plan_.activation_policies)));
  const std::vector<int64_t>& begins = plan_.stage_begins;
  for (size_t i = 0; begins.size() > 1 && i < begins.size(); ++i) {
    if (i == kMostStages) {
      lines.push_back(cat("and ", begins.size() - i, " more stages"));
      break;
    }
    lines.push_back(cat("stage ", i, ": from layer ", begins[i]));
  }
  lines.push_back("ranks exchange by " + plan::to_string(plan_.backend));
  if (!plan_.predicted_phase_bytes.empty()) {
    lines.push_back("the fullest rank needs " +
                    format_bytes(planner::fullest_rank_bytes(plan_)) + ", " +
                    planner::fullest_phase(plan_));
  }
  return lines;
}

const std::vector<layers::LayerCost>& PlanRecord::layers() {
  if (layers_) return *layers_;
  // A run's file may contain any numbers, and they determine the work and the
  // memory: check them first.
  configs::check_run_config(config_);
  const auto recorded = run_directory_.empty()
                            ? std::nullopt
                            : layers::recorded_model(run_directory_);
  layers::ModelTable table =
      recorded ? *recorded : planner::table_of_run(config_);
  if (const auto classes = planner::num_classes_of_run(config_)) {
    table.num_classes = *classes;
  }
  std::vector<layers::LayerCost> costs = layers::layer_costs(table);
  if (!belong_together(plan_, costs)) throw CheckFailure(kMismatch);
  return layers_.emplace(std::move(costs));
}

std::string PlanRecord::layer_name(int64_t layer) {
  if (layer < 0 || layer >= std::ssize(layers())) return "";
  const layers::LayerCost& cost = layers()[static_cast<size_t>(layer)];
  return cat(layer, " ", cost.module, " (", cost.channels, ")");
}

const Json& PlanRecord::words() {
  if (words_) return *words_;
  Json words = {{"reason", plan_.reason},
                {"lines", lines()},
                {"other_layouts", Json::array()},
                {"no_other_layouts", ""}};
  const int world_size = plan_.layout.world_size();
  if (world_size > kMostProcesses) {
    words["no_other_layouts"] = cat("They are not worked out for more than ",
                                    kMostProcesses, " processes.");
  } else {
    words["no_other_layouts"] = why_not([&] {
      for (const planner::OtherLayout& other :
           planner::other_layouts(config_, plan_, layers())) {
        words["other_layouts"].push_back(
            {{"layout", plan::short_text(other.layout)},
             {"answer", planner::answer_text(other)}});
      }
    });
    if (world_size == 1 && words["no_other_layouts"] == "") {
      words["no_other_layouts"] = "One process has one layout.";
    }
  }
  return words_.emplace(std::move(words));
}

const Json& PlanRecord::timeline(int rank) {
  if (timelines_.size() >= kMostKnownTimelines) timelines_.clear();
  const auto known = timelines_.find(rank);
  if (known != timelines_.end()) return known->second;
  Json timeline = {
      {"rank", rank}, {"peak", nullptr}, {"points", Json::array()}};
  const std::string why = why_not([&] {
    const predict::StepTimeline step = predict::step_timeline(
        predict::memory_request(config_, plan_, layers()),
        plan::coordinates_of(plan_.layout, rank));
    timeline["peak"] = step.peak_bytes;
    const auto add = [&](const char* phase, const std::string& layer,
                         int64_t kept, int64_t scratch) {
      timeline["points"].push_back({{"phase", phase},
                                    {"layer", layer},
                                    {"kept", kept},
                                    {"scratch", scratch}});
    };
    static constexpr std::array kParts = {"forward", "loss", "backward"};
    for (const predict::PartMemory& part : step.parts) {
      add(kParts[static_cast<size_t>(part.part)], layer_name(part.layer),
          part.kept_bytes, part.scratch_bytes);
    }
    add("commit", "", step.state_bytes, 0);
  });
  if (!why.empty()) timeline["why_not"] = why;
  return timelines_.emplace(rank, std::move(timeline)).first->second;
}

}  // namespace headroom::page
