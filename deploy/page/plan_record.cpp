#include "deploy/page/plan_record.h"

#include <algorithm>
#include <utility>

#include "configs/layers/model_record.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/predict/memory_request.h"

namespace headroom::page {
namespace {

constexpr int kMostProcesses = 64;
constexpr size_t kMostKnownTimelines = 64;
constexpr size_t kMostStages = 32;
// The plan was made for another model than the files describe now.
constexpr const char* kMismatch =
    "the run's plan and its model do not belong together";

bool belong_together(const plan::Plan& plan,
                     const std::vector<layers::LayerCost>& layers) {
  const bool has_policies = !plan.activation_policies.empty();
  return (plan.stage_begins.empty() ||
          plan.stage_begins.back() < std::ssize(layers)) &&
         (!has_policies || plan.activation_policies.size() == layers.size());
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
  layers_.emplace();
  try {
    const auto recorded = run_directory_.empty()
                              ? std::nullopt
                              : layers::recorded_model(run_directory_);
    layers::ModelTable table =
        recorded ? *recorded : planner::table_of_run(config_);
    if (const auto classes = planner::num_classes_of_run(config_)) {
      table.num_classes = *classes;
    }
    std::vector<layers::LayerCost> costs = layers::layer_costs(table);
    if (belong_together(plan_, costs)) {
      layers_ = std::move(costs);
    } else {
      layers_error_ = kMismatch;
    }
  } catch (const Error& error) {
    layers_error_ = error.what();
  }
  return *layers_;
}

const PlanRecord::Others& PlanRecord::others() {
  if (others_) return *others_;
  others_.emplace();
  const int world_size = plan_.layout.world_size();
  if (world_size > kMostProcesses) {
    others_->why_not = cat("They are not worked out for more than ",
                           kMostProcesses, " processes.");
  } else if (layers().empty()) {
    others_->why_not = layers_error_;
  } else if (world_size == 1) {
    others_->why_not = "One process has one layout.";
  } else {
    try {
      others_->layouts = planner::other_layouts(config_, plan_, layers());
    } catch (const Error& error) {
      others_->why_not = error.what();
    } catch (const CheckFailure&) {
      others_->why_not = kMismatch;
    }
  }
  return *others_;
}

const PlanRecord::Timeline& PlanRecord::timeline(int rank) {
  if (timelines_.size() >= kMostKnownTimelines) timelines_.clear();
  const auto [place, is_new] = timelines_.try_emplace(rank);
  Timeline& timeline = place->second;
  if (!is_new) return timeline;
  if (layers().empty()) {
    timeline.why_not = layers_error_;
    return timeline;
  }
  try {
    timeline.step = predict::step_timeline(
        predict::memory_request(config_, plan_, layers()),
        plan::coordinates_of(plan_.layout, rank));
  } catch (const Error& error) {
    timeline.why_not = error.what();
  } catch (const CheckFailure&) {
    timeline.why_not = kMismatch;
  }
  return timeline;
}

std::string PlanRecord::layer_name(int64_t layer) {
  if (layer < 0 || layer >= std::ssize(layers())) return "";
  const layers::LayerCost& cost = layers()[static_cast<size_t>(layer)];
  return cat(layer, " ", cost.module, " (", cost.channels, ")");
}

}  // namespace headroom::page
