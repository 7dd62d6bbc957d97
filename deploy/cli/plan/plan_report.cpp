#include "deploy/cli/plan/plan_report.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "configs/multi_scale.h"
#include "coordinator/run/precision_choice.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_time.h"
#include "parallel/predict/phase_memory.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

// The most lines of a table; the JSON document has all lines.
constexpr size_t kMostLines = 16;
// At most this many data ranks have their samples listed, because listing one
// rank visits all groups.
constexpr int kMostParts = 256;

// The range with both ends: "0-7", "3"; "none" if the range is empty.
std::string range_text(int64_t begin, int64_t end) {
  if (begin >= end) return "none";
  return end == begin + 1 ? std::to_string(begin) : cat(begin, "-", end - 1);
}

// Writes a number in millions, for example 1,872,157 as "1.87 M".
std::string millions(double value) { return fixed_text(value / 1e6, 2) + " M"; }

std::string percent(double part) { return fixed_text(100 * part, 0) + " %"; }

int64_t image_height(const PlanReport& report) {
  return layers::rounded_image_size(report.config.image_height,
                                    layers::largest_stride(report.layers));
}
int64_t image_width(const PlanReport& report) {
  return layers::rounded_image_size(report.config.image_width,
                                    layers::largest_stride(report.layers));
}
int64_t num_classes(const PlanReport& report) {
  return planner::num_classes_of_run(report.config).value_or(80);
}
// ", each batch from 320 x 320 to 960 x 960" with --multi-scale, else "".
std::string scales_text(const PlanReport& report) {
  if (!report.config.multi_scale) return "";
  const int64_t stride = layers::largest_stride(report.layers);
  const auto text = [](const configs::InputSize& size) {
    return cat(size.height, " x ", size.width);
  };
  return ", each batch from " +
         text(configs::input_size({image_height(report), image_width(report)},
                                  stride, 0)) +
         " to " + text(configs::largest_input_size(report.config, stride));
}

double pixels(const PlanReport& report) {
  return configs::mean_pixels(report.config,
                              layers::largest_stride(report.layers));
}

double all_work(const PlanReport& report) {
  double work = 0;
  for (const planner::StageShare& stage : report.stages) {
    work += stage.multiply_adds_per_pixel;
  }
  return work;
}

double part_of_one_stage(const PlanReport& report, size_t stage) {
  return static_cast<double>(report.memory[stage].total()) /
         static_cast<double>(report.one_stage_bytes);
}

// The ranks whose coordinates satisfy `belongs`, as ranges: "0-1, 4-5".
template <typename Predicate>
std::string ranks_text(const plan::ParallelLayout& layout,
                       const Predicate& belongs) {
  std::string text;
  int begin = -1;
  for (int rank = 0; rank <= layout.world_size(); ++rank) {
    const bool in = rank < layout.world_size() &&
                    belongs(plan::coordinates_of(layout, rank));
    if (in && begin < 0) begin = rank;
    if (!in && begin >= 0) {
      text += (text.empty() ? "" : ", ") + range_text(begin, rank);
      begin = -1;
    }
  }
  return text;
}

// "4 of 2" means 4 micro-batches of 2 samples. If their sizes differ, the text
// lists the samples of each one: "3: 0-1, 2-3, 4-6".
std::string micro_batches_text(const plan::BatchPart& part) {
  const std::vector<plan::SampleRange>& all = part.micro_batches;
  const bool equal =
      std::all_of(all.begin(), all.end(), [&](const plan::SampleRange& range) {
        return range.size() == all.front().size();
      });
  if (equal) return cat(all.size(), " of ", all.front().size());
  std::string text = cat(all.size(), ":");
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == kMostLines) return text + ", ...";
    text += (i == 0 ? " " : ", ") + range_text(all[i].begin, all[i].end);
  }
  return text;
}

// A table with `head` and `count` lines, cut after kMostLines.
template <typename Line>
std::string cut_table(const std::vector<std::string>& head, size_t count,
                      const Line& line) {
  Cells rows;
  if (!head.empty()) rows.push_back(head);
  for (size_t i = 0; i < std::min(count, kMostLines); ++i) {
    rows.push_back(line(i));
  }
  if (count <= kMostLines) return text_table(rows);
  return cat(text_table(rows), "  ... ",
             static_cast<int64_t>(count - kMostLines), " more\n");
}

std::string stages_table(const PlanReport& report) {
  return cut_table(
      {"stage", "layers", "parameters", "multiply-adds", "share", "memory",
       "of one stage", "ranks"},
      report.stages.size(), [&](size_t i) -> std::vector<std::string> {
        const planner::StageShare& stage = report.stages[i];
        return {std::to_string(static_cast<int64_t>(i)),
                range_text(stage.begin, stage.end),
                millions(static_cast<double>(stage.parameters)),
                millions(stage.multiply_adds_per_pixel * pixels(report)),
                percent(stage.multiply_adds_per_pixel / all_work(report)),
                format_bytes(report.memory[i].total()),
                percent(part_of_one_stage(report, i)),
                ranks_text(report.plan.layout,
                           [&](const plan::MeshCoordinates& at) {
                             return at.pipeline_stage == static_cast<int>(i);
                           })};
      });
}

std::string samples_table(const PlanReport& report) {
  return cut_table({"data rank", "samples", "micro-batches", "ranks"},
                   static_cast<size_t>(report.plan.layout.data_parallel_size),
                   [&](size_t i) -> std::vector<std::string> {
                     const plan::BatchPart& part = report.parts[i];
                     return {std::to_string(static_cast<int64_t>(i)),
                             range_text(part.local.begin, part.local.end),
                             micro_batches_text(part),
                             ranks_text(report.plan.layout,
                                        [&](const plan::MeshCoordinates& at) {
                                          return at.data_parallel_rank ==
                                                 static_cast<int>(i);
                                        })};
                   });
}

const plan::PhaseBytes& phases_of_stage(const PlanReport& report,
                                        size_t stage) {
  plan::MeshCoordinates first;
  first.pipeline_stage = static_cast<int>(stage);
  return report.plan.predicted_phase_bytes.at(
      static_cast<size_t>(plan::rank_of(report.plan.layout, first)));
}

// The items that matter to most readers; the JSON document has all items.
std::string memory_table(const PlanReport& report) {
  return cut_table({"stage", "model state", "images", "kept", "transient",
                    "communication", "rest", "predicted"},
                   report.memory.size(),
                   [&](size_t i) -> std::vector<std::string> {
                     const predict::MemoryEstimate& memory = report.memory[i];
                     const MemoryParts parts = memory_parts(memory);
                     return {std::to_string(static_cast<int64_t>(i)),
                             format_bytes(parts.model_state),
                             format_bytes(memory.images),
                             format_bytes(memory.activations),
                             format_bytes(memory.transient),
                             format_bytes(memory.communication),
                             format_bytes(parts.rest),
                             format_bytes(memory.total())};
                   });
}

// The bytes of each phase of a run, on the first rank of each stage.
std::string phases_table(const PlanReport& report) {
  return cut_table(
      {"stage", "start-up", "training", "validation", "checkpoint", "host"},
      report.memory.size(), [&](size_t i) -> std::vector<std::string> {
        const plan::PhaseBytes& bytes = phases_of_stage(report, i);
        return {std::to_string(static_cast<int64_t>(i)),
                format_bytes(bytes.start_up),
                format_bytes(bytes.training),
                format_bytes(bytes.validation),
                format_bytes(bytes.checkpoint),
                format_bytes(bytes.host)};
      });
}

// The bytes of a rank if the pipeline had one stage.
int64_t bytes_of_one_stage(const PlanReport& report) {
  plan::Plan whole = report.plan;
  whole.layout.pipeline_parallel_size = 1;
  whole.stage_begins = {0};
  return predict::largest_total(predict::estimate_memory(
      predict::memory_request(report.config, whole, report.layers)));
}

Json memory_json(const predict::MemoryEstimate& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"accumulated_gradients", memory.accumulated_gradients},
          {"moments", memory.moments},
          {"average", memory.average},
          {"statistics", memory.statistics},
          {"images", memory.images},
          {"activations", memory.activations},
          {"transient", memory.transient},
          {"communication", memory.communication},
          {"targets", memory.targets},
          {"workspace", memory.workspace},
          {"total", memory.total()}};
}

Json other_phases_json(const PlanReport& report, size_t stage) {
  const predict::MemoryRequest request =
      predict::memory_request(report.config, report.plan, report.layers);
  plan::MeshCoordinates first;
  first.pipeline_stage = static_cast<int>(stage);
  return {
      {"start_up", memory_json(predict::estimate_start_up(request, first))},
      {"validation", memory_json(predict::estimate_validation(request, first))},
      {"checkpoint",
       memory_json(predict::estimate_checkpoint(request, first))}};
}

// Warns if the stages cannot overlap, as there is only one micro-batch.
std::string pipeline_note(const PlanReport& report) {
  if (report.plan.layout.pipeline_parallel_size == 1 ||
      report.parts.front().micro_batches.size() > 1) {
    return "";
  }
  const int64_t group = plan::largest_group(report.config.global_batch_size,
                                            report.plan.batch_norm_rule());
  return group < 4
             ? ""
             : cat("one micro-batch: a stage works while the others wait; "
                   "smaller groups, for example --bn-group ",
                   group / 4, " from the start of a run, make more of them\n");
}

}  // namespace

std::string groups_note(const PlanReport& report) {
  std::string text;
  const std::string exchanges = planner::statistics_text(planner::plan_time(
      report.config, report.plan, {report.layers, report.card}));
  if (!exchanges.empty()) text += "statistics   " + exchanges + "\n";
  if (report.groups_warning)
    text += "warning: " + *report.groups_warning + "\n";
  return text;
}

namespace {

std::string others_table(const PlanReport& report) {
  return cut_table(
      {}, report.others.size(), [&](size_t i) -> std::vector<std::string> {
        const planner::OtherLayout& other = report.others[i];
        return {plan::to_string(other.layout), planner::answer_text(other)};
      });
}

std::string drawing(const PlanReport& report) {
  return pipeline::draw_schedule(
      pipeline::PipelineSchedule::k1F1B,
      report.plan.layout.pipeline_parallel_size,
      static_cast<int64_t>(report.parts.front().micro_batches.size()));
}

// The most boxes that the predicted bytes allow for.
Json labels_json(const PlanReport& report) {
  const predict::LabelBound labels = predict::label_bound(report.config);
  const predict::BoxBound bound =
      predict::most_boxes(labels, report.plan.micro_batch_size);
  Json json;
  switch (bound.kind) {
    case predict::BoxBound::Kind::kAssumed:
      json = {{"bound", "assumed"},
              {"assumed_boxes_per_image", labels.assumed_boxes_per_image}};
      break;
    case predict::BoxBound::Kind::kCertain:
      json = {{"bound", "certain"}};
      break;
    case predict::BoxBound::Kind::kLikely:
      json = {{"bound", "likely"},
              {"probability_of_more", predict::kMoreBoxesProbability}};
      break;
  }
  json["boxes_per_micro_batch"] = bound.boxes;
  if (labels.statistics.is_known()) {
    json["images"] = labels.statistics.num_images();
    json["most_boxes"] = labels.statistics.most_boxes();
    json["mean"] = labels.statistics.mean();
  }
  return json;
}

Json range_json(const plan::SampleRange& range) {
  return Json::array({range.begin, range.end});
}

}  // namespace

PlanReport make_plan_report(const configs::RunConfig& config, int world_size,
                            bool with_schedule,
                            const planner::RemedyScope& remedies,
                            const planner::CardSpeed& card) {
  PlanReport report;
  report.config = config;
  report.model =
      std::filesystem::path(planner::model_of_run(config)).stem().string();
  report.layers = planner::model_layers(config);
  report.card = planner::measured_speed(card, config, report.layers);
  const planner::ModelOnCard model(report.layers, report.card);
  report.plan = planner::plan_or_throw(config, world_size, model, remedies);
  report.groups_warning =
      planner::smaller_groups_warning(config, report.plan, model, remedies);
  report.stages = planner::stage_shares(report.plan, report.layers);
  report.memory = predict::estimate_memory(
      predict::memory_request(config, report.plan, report.layers));
  report.one_stage_bytes = bytes_of_one_stage(report);

  const plan::Plan& plan = report.plan;
  const int64_t batch = config.global_batch_size;
  const plan::BatchCut cut = {batch, plan.layout.data_parallel_size,
                              plan.micro_batch_size, plan.batch_norm_rule()};
  const int64_t stride = layers::largest_stride(report.layers);
  const int64_t smallest_map =
      (image_height(report) / stride) * (image_width(report) / stride);
  const int num_parts = std::min(plan.layout.data_parallel_size, kMostParts);
  for (int rank = 0; rank < num_parts; ++rank) {
    report.parts.push_back(plan::part_of(cut, batch, smallest_map, rank));
  }
  report.groups =
      plan::batch_norm_groups(batch, plan.batch_norm_rule(), smallest_map);

  report.others = planner::other_layouts(config, plan, model);
  if (with_schedule) report.schedule = drawing(report);
  return report;
}

MemoryParts memory_parts(const predict::MemoryEstimate& memory) {
  MemoryParts parts;
  parts.rest = memory.targets + memory.workspace;
  parts.model_state = memory.total() - memory.images - memory.activations -
                      memory.transient - memory.communication - parts.rest;
  return parts;
}

std::string assumptions_text(const configs::RunConfig& config) {
  const bool knows_classes = planner::num_classes_of_run(config).has_value();
  const predict::LabelBound labels = predict::label_bound(config);
  const predict::LabelStatistics& images = labels.statistics;
  if (images.is_known()) {
    return cat("labels       of ", counted(images.num_images(), "image"),
               ": up to ", counted(images.most_boxes(), "box"), ", ",
               fixed_text(images.mean(), 1), " on average\n",
               knows_classes ? "" : "assumed      80 classes\n");
  }
  return cat("assumed      ",
             knows_classes ? "" : std::string("80 classes and "),
             labels.assumed_boxes_per_image, " boxes per image\n");
}

std::string schedule_text(const PlanReport& report) {
  return "Schedule, one column per time slot\n" + report.schedule;
}

std::string plan_report_text(const PlanReport& report) {
  const configs::RunConfig& config = report.config;
  const plan::Plan& plan = report.plan;
  const int world_size = plan.layout.world_size();
  std::string text =
      cat("plan         ", plan.reason,
          "\n"
          "model        ",
          report.model, ", ", counted(num_classes(report), "class"), ", ",
          image_size_text(config, report.layers), " pixels",
          scales_text(report), "\n", assumptions_text(config), "layout       ",
          plan::to_string(plan.layout), ": ", counted(world_size, "process"),
          ", ", plan::to_string(plan.backend),
          "\n"
          "zero         ",
          plan.zero_stage,
          "\n"
          "activations  ",
          plan::activations_text(plan.activation_policies),
          "\n"
          "optimizer    ",
          to_string(config.optimizer),
          "\n"
          "precision    ",
          coordinator::precision_text(config), "\n", groups_note(report), "\n");
  if (report.forecast) text += forecast_text(*report.forecast) + "\n";
  text +=
      "Predicted bytes of tensors of a rank, at the peak of a step: " +
      predict::bound_text(predict::label_bound(config), plan.micro_batch_size) +
      "\n" + memory_table(report) + "\n";
  text += "In each part of a run" +
          (plan.validation_images == 0
               ? std::string()
               : cat(", ", plan.validation_images, " of ",
                     predict::validation_batch_size(config),
                     " images of a validation batch at once")) +
          "; host: of the loader and of files\n" + phases_table(report) +
          (report.segments ? segments_text(*report.segments) : "") + "\n";
  text += "Layers of the model, multiply-adds of one image's forward" +
          std::string(config.multi_scale ? " in the mean of its sizes" : "") +
          ", and predicted memory of a rank\n" + stages_table(report) +
          pipeline_note(report) + "\n";
  text += cat(
      "Samples of a full batch of ", config.global_batch_size, ", in ",
      counted(std::ssize(report.groups), "batch-norm group"), " of ",
      plan::group_sizes_text(config.global_batch_size, plan.batch_norm_rule()),
      "\n", samples_table(report));
  if (!report.schedule.empty()) text += "\n" + schedule_text(report);
  if (!report.others.empty()) {
    text += cat("\nOther layouts of ", world_size, " processes\n",
                others_table(report));
  }
  return text;
}

std::string plan_report_json(const PlanReport& report) {
  Json json;
  json["exit_code"] =
      report.unusable.empty() ? 0 : static_cast<int>(ExitCode::kNoPlan);
  if (!report.unusable.empty()) json["cannot_train"] = report.unusable;
  json["reason"] = report.plan.reason;
  json["plan"] = plan::plan_object(report.plan);
  json["world_size"] = report.plan.layout.world_size();
  json["model"] = report.model;
  json["num_classes"] = num_classes(report);
  json["labels"] = labels_json(report);
  json["image_height"] = image_height(report);
  json["image_width"] = image_width(report);
  if (report.config.multi_scale) {
    const configs::InputSize largest = configs::largest_input_size(
        report.config, layers::largest_stride(report.layers));
    json["largest_image"] = {largest.height, largest.width};
  }
  json["global_batch_size"] = report.config.global_batch_size;
  json["optimizer"] = to_string(report.config.optimizer);
  json["precision"] = coordinator::precision_text(report.config);
  if (report.forecast) json["forecast"] = forecast_json(*report.forecast);
  if (report.run) json["run"] = run_json(*report.run);
  for (size_t i = 0; i < report.stages.size(); ++i) {
    const planner::StageShare& stage = report.stages[i];
    json["stages"].push_back(
        {{"rows", {stage.begin, stage.end}},
         {"parameters", stage.parameters},
         {"multiply_adds", stage.multiply_adds_per_pixel * pixels(report)},
         {"share", stage.multiply_adds_per_pixel / all_work(report)},
         {"predicted_peak_bytes", report.memory[i].total()},
         {"memory", memory_json(report.memory[i])},
         {"memory_of_other_phases", other_phases_json(report, i)},
         {"part_of_one_stage", part_of_one_stage(report, i)}});
  }
  if (const auto& segments = report.segments) {
    json["segments"] = {{"stage", segments->stage},
                        {"tensor_bytes", segments->estimate.tensor_bytes},
                        {"segment_bytes", segments->estimate.segment_bytes},
                        {"room_bytes", segments->room_bytes}};
  }
  for (int rank = 0; rank < report.plan.layout.world_size(); ++rank) {
    const plan::MeshCoordinates at =
        plan::coordinates_of(report.plan.layout, rank);
    const auto data_rank = static_cast<size_t>(at.data_parallel_rank);
    if (data_rank >= report.parts.size()) continue;
    const plan::BatchPart& part = report.parts[data_rank];
    Json entry = {{"rank", rank},
                  {"pipeline_stage", at.pipeline_stage},
                  {"data_parallel_rank", at.data_parallel_rank},
                  {"spatial_rank", at.spatial_rank},
                  {"samples", range_json(part.local)}};
    for (const plan::SampleRange& range : part.micro_batches) {
      entry["micro_batches"].push_back(range_json(range));
    }
    json["ranks"].push_back(entry);
  }
  json["ranks_left_out"] =
      report.plan.layout.world_size() - static_cast<int>(json["ranks"].size());
  for (const plan::SampleRange& group : report.groups) {
    json["batch_norm_groups"].push_back(range_json(group));
  }
  json["other_layouts"] = Json::array();
  for (const planner::OtherLayout& other : report.others) {
    Json& entry = json["other_layouts"].emplace_back(
        Json{{"layout", plan::to_string(other.layout)},
             {"admissible", other.refusal.empty()},
             {"reason", other.refusal}});
    if (!other.cost) continue;
    entry["predicted_peak_bytes"] = other.cost->fullest_rank_bytes;
    if (other.cost->relative_time) {
      entry["relative_step_time"] = *other.cost->relative_time;
    }
  }
  if (!report.schedule.empty()) json["schedule"] = report.schedule;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::cli
