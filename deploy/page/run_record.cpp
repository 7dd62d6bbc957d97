#include "deploy/page/run_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/options.h"
#include "configs/yaml/strict_yaml.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "proto/version.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The most points of memory in one answer, of all ranks together.
constexpr size_t kMostShownMemory = 24'000;
constexpr size_t kLeastShownMemory = 24;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}
// Returns null above 2^53, where a double does not represent every whole
// number.
Json whole_or_null(double value) {
  return std::abs(value) <= 0x1p53 ? Json(static_cast<int64_t>(value)) : Json();
}

Json settings_of(const configs::RunConfig& config) {
  Json settings = Json::array();
  for (const configs::Option& option : configs::run_options()) {
    settings.push_back(
        {configs::table_name(option), configs::value_text(config, option)});
  }
  return settings;
}

Json drawn_plan(const plan::Plan& plan) {
  Json json = plan::plan_object(plan);
  json.erase("activation_policies");
  return json;
}

Json live_json(const std::optional<LiveStatus>& live) {
  if (!live) return nullptr;
  Json json = Json::parse(live->json, nullptr, false);
  if (!json.is_object()) return nullptr;
  json.erase("events");
  json.erase("result");
  return json;
}

}  // namespace

RunRecord::RunRecord(records::RunPlace place) : place_(std::move(place)) {}

RunRecord::RunRecord(const PlannedRun& planned)
    : place_{planned.name, ""},
      planned_(planned),
      config_(planned.config),
      plan_(std::make_unique<PlanRecord>(fs::path(), planned.config,
                                         planned.plan)) {}

void RunRecord::refresh(const std::optional<LiveStatus>& live, bool is_held) {
  live_ = live;
  is_held_ = is_held;
  read_definition();
  if (!has_older_results()) return;
  history_.reset();
  recent_.reset();
}

// Keeps the values of files that cannot be read now.
void RunRecord::read_definition() {
  bool is_new = false;
  const fs::path run_file = place_.directory / run_files::kRun;
  const fs::path plan_file = place_.directory / run_files::kPlan;
  if (std::string text = records::file_text(run_file);
      !text.empty() && text != run_text_) {
    run_text_ = std::move(text);
    try {
      config_ = configs::parse_run_config(run_text_, run_file.string());
      is_new = true;
    } catch (const Error&) {
    }
  }
  if (std::string text = records::file_text(plan_file);
      !text.empty() && text != plan_text_) {
    plan_text_ = std::move(text);
    try {
      written_plan_ = plan::plan_from_json(plan_text_, plan_file.string());
    } catch (const Error&) {
    }
  }
  const auto& now = live_ && live_->plan ? live_->plan : written_plan_;
  if (!now || !config_) return;
  if (!is_new && plan_ && plan_->plan() == *now) return;
  plan_ = std::make_unique<PlanRecord>(place_.directory, *config_, *now);
}

// Until this run has committed a step, the files belong to an older run.
bool RunRecord::has_older_results() const {
  std::error_code error;
  return (live_ || is_held_) &&
         fs::exists(place_.directory / run_files::kOlderRun, error);
}

int RunRecord::world_size() const {
  return plan_ ? plan_->plan().layout.world_size() : 0;
}

std::vector<Picture> RunRecord::pictures() const {
  return planned_ ? std::vector<Picture>() : pictures_in(place_.directory);
}

std::string RunRecord::document(size_t most_events) {
  const fs::path& folder = place_.directory;
  // The stamp is taken first: if a file changes while it is read, the page asks
  // again.
  Json json = {{"id", place_.id},
               {"stamp", planned_ ? "" : stamp_of(folder)},
               {"directory", folder.string()},
               {"version", wire::kVersion},
               {"live", live_json(live_)},
               {"held", is_held_},
               {"planned", nullptr},
               {"config", nullptr},
               {"plan", plan_ ? drawn_plan(plan_->plan()) : Json()},
               {"pictures", Json::array()},
               {"checkpoints", Json::array()}};
  if (config_) {
    json["config"] = {{"batch", config_->global_batch_size},
                      {"epochs", config_->epochs},
                      {"max_steps", config_->max_steps},
                      {"best_metric", config_->best_metric},
                      {"memory_limit", config_->memory_limit}};
    json["choices"] = Json::object();
    for (const configs::Option& option : configs::run_options()) {
      if (!configs::distinguishes_runs(option)) continue;
      json["choices"][configs::table_name(option)] =
          configs::value_text(*config_, option);
    }
  }
  if (planned_) {
    json["planned"] = {{"verdict", planned_->verdict},
                       {"command", planned_->command}};
    return text_of(json);
  }
  json["resume"] = "headroom train --resume " + shell_word(folder.string());
  json["events"] = events_text(folder, most_events);
  if (!has_older_results()) {
    json["results"] = records::file_text(folder / run_files::kResults);
    json["summary"] = records::file_text(folder / run_files::kSummary);
    if (!recent_) recent_ = std::make_unique<records::RecentSteps>(folder);
    recent_->refresh();
    json["last_step"] = recent_->last_line();
    json["median_speed"] = number_or_null(recent_->median_speed());
  }
  for (const Picture& picture : pictures()) {
    json["pictures"].push_back(
        {{"name", picture.name}, {"time", picture.time}});
  }
  json["checkpoints"] = records::checkpoints_in(folder);
  return text_of(json);
}

std::string RunRecord::plan() {
  Json json = plan_ ? plan_->words() : Json::object();
  json["settings"] = config_ ? settings_of(*config_) : Json::array();
  json["details"] = Json::array();
  for (size_t i = 0; planned_ && i < planned_->details.size(); ++i) {
    const PlannedRun::Detail& detail = planned_->details[i];
    json["details"].push_back({{"title", detail.title}, {"text", detail.text}});
  }
  return text_of(json);
}

std::string RunRecord::steps(size_t points, int64_t from) {
  const int64_t bytes = planned_ ? 0 : steps_bytes(place_.directory);
  if (history_ == nullptr) {
    history_ = std::make_unique<StepHistory>(place_.directory);
  }
  if (!planned_ && !has_older_results()) history_->refresh();
  Json json = {{"bytes", bytes},
               {"total", history_->num_steps()},
               {"epoch_samples", history_->epoch_samples()},
               {"columns", Json::array({"step"})},
               {"rows", Json::array()},
               {"memory", Json::array()}};
  for (const char* column : kStepColumns) json["columns"].push_back(column);
  for (const size_t i : history_->steps().chosen(points, from)) {
    const DecimatedSeries::Point point = history_->steps().point(i);
    Json row = Json::array({point.step});
    for (const double value : point.values)
      row.push_back(number_or_null(value));
    json["rows"].push_back(std::move(row));
  }
  const auto& memory = history_->memory();
  const size_t most =
      std::clamp(kMostShownMemory / std::max<size_t>(1, memory.size()),
                 kLeastShownMemory, std::max(points, kLeastShownMemory));
  for (const auto& [rank, series] : memory) {
    Json one = {{"rank", rank},
                {"step", Json::array()},
                {"predicted", Json::array()},
                {"measured", Json::array()}};
    for (const size_t i : series.chosen(most, from)) {
      const DecimatedSeries::Point point = series.point(i);
      one["step"].push_back(point.step);
      one["predicted"].push_back(
          whole_or_null(point.values[StepHistory::kPredicted]));
      one["measured"].push_back(
          whole_or_null(point.values[StepHistory::kMeasured]));
    }
    json["memory"].push_back(std::move(one));
  }
  return text_of(json);
}

std::optional<std::string> RunRecord::timeline(int rank) {
  if (rank < 0 || rank >= world_size()) return std::nullopt;
  return text_of(plan_->timeline(rank));
}

std::string live_text(const std::optional<LiveStatus>& live) {
  return text_of(live_json(live));
}

std::string json_text(const std::string& text) { return text_of(Json(text)); }

}  // namespace headroom::page
