#include "deploy/page/run_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/options.h"
#include "configs/yaml/strict_yaml.h"
#include "deploy/page/folder_contents.h"
#include "deploy/page/plan_record.h"
#include "deploy/page/step_history.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "proto/version.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The greatest number of points in one answer, over the memory of all ranks.
constexpr size_t kMostShownMemory = 24'000;
constexpr size_t kLeastShownMemory = 24;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}
// Above 2^53 a double does not represent every whole number.
bool is_countable(double value) { return std::abs(value) <= 0x1p53; }
Json whole_or_null(double value) {
  return is_countable(value) ? Json(static_cast<int64_t>(value)) : Json();
}

Json settings_of(const configs::RunConfig& config) {
  Json settings = Json::array();
  for (const configs::Option& option : configs::run_options()) {
    const std::string name =
        option.names.empty() ? option.key : option.names.front().substr(2);
    settings.push_back({name, configs::value_text(config, option)});
  }
  return settings;
}

struct ShownState {
  std::string state = "unknown", reason;
};

ShownState end_of(int exit_code, std::string reason) {
  ShownState end;
  end.reason = std::move(reason);
  if (exit_code == static_cast<int>(ExitCode::kDone)) {
    end.state = "finished";
  } else if (exit_code == static_cast<int>(ExitCode::kInterrupted) ||
             exit_code == static_cast<int>(ExitCode::kResource)) {
    end.state = "stopped";
  } else {
    end.state = "failed";
  }
  return end;
}

}  // namespace

struct RunRecord::State {
  State(std::string name, fs::path folder)
      : id(std::move(name)),
        directory(std::move(folder)),
        run_file(directory / run_files::kRun),
        plan_file(directory / run_files::kPlan),
        results_file(directory / run_files::kResults),
        summary_file(directory / run_files::kSummary),
        history(directory),
        events(directory) {}

  explicit State(const PlannedRun& given) : State(given.name, "") {
    planned = given;
    config = given.config;
    model = planner::model_of_run(*config);
    settings = settings_of(*config);
    plan = std::make_unique<PlanRecord>(fs::path(), *config, given.plan);
  }

  void refresh(const coordinator::RunStatus* status, bool is_held) {
    live.reset();
    if (status != nullptr) live = *status;
    held = is_held;
    read_definition();
    std::error_code error;
    const bool has_none =
        (live || held) && fs::exists(directory / run_files::kOlderRun, error);
    if (has_none) {
      forget_results();
    } else {
      read_results();
    }
    events.refresh();
    pictures = pictures_in(directory);
    checkpoints = checkpoints_in(directory);
  }

  void read_results() {
    if (const auto text = results_file.changed()) epochs = epoch_table(*text);
    if (const auto text = summary_file.changed()) {
      const Json summary = records::shallow_json(*text);
      per_class = nullptr;
      if (summary.is_object() && summary.contains("per_class") &&
          summary["per_class"].is_array()) {
        per_class = summary["per_class"];
      }
    }
    history.refresh();
  }

  // Until this run has committed a step, the files belong to an older run.
  void forget_results() {
    results_file = WatchedFile(results_file.path());
    summary_file = WatchedFile(summary_file.path());
    epochs = {};
    per_class = nullptr;
    history = StepHistory(directory);
  }

  // Reads the files that define the run; keeps values of unreadable files.
  void read_definition() {
    bool is_new = false;
    if (const auto text = run_file.changed(); text && !text->empty()) {
      try {
        config = configs::parse_run_config(*text, run_file.path().string());
        model = planner::model_of_run(*config);
      } catch (const Error&) {
        model = config ? config->cfg : "";
      }
      settings = config ? settings_of(*config) : Json::array();
      is_new = true;
    }
    std::optional<plan::Plan> now;
    if (const auto text = plan_file.changed(); text && !text->empty()) {
      try {
        now = plan::plan_from_json(*text, plan_file.path().string());
      } catch (const Error&) {
      }
    }
    if (live && live->plan) now = live->plan;
    if (!now && is_new && plan) now = plan->plan();
    if (!now || !config) return;
    if (!is_new && plan && plan->plan() == *now) return;
    plan = std::make_unique<PlanRecord>(directory, *config, *now);
  }

  ShownState end() const {
    if (planned) return {"planned", planned->verdict};
    if (live) {
      if (live->over()) return end_of(live->exit_code, live->reason);
      return {"running", live->reason};
    }
    if (held) return {"running", ""};
    if (events.end()) {
      return end_of(events.end()->exit_code, events.end()->reason);
    }
    if (history.num_steps() == 0 && events.count() == 0) return {};
    return {"stopped", "no end of the run is written: it was killed"};
  }

  bool is_running() const { return live ? !live->over() : held; }

  int64_t batch() const { return config ? config->global_batch_size : 0; }
  int64_t steps_per_epoch() const {
    if (live && live->progress.steps_per_epoch > 0) {
      return live->progress.steps_per_epoch;
    }
    if (batch() <= 0) return 0;
    return (history.epoch_samples() + batch() - 1) / batch();
  }

  Json progress() const {
    const int64_t all_epochs = config ? config->epochs : 0;
    int64_t step = history.num_steps();
    int64_t steps = steps_per_epoch() * all_epochs;
    if (config && config->max_steps > 0) {
      steps =
          steps > 0 ? std::min(steps, config->max_steps) : config->max_steps;
    }
    const double newest_epoch = history.newest(StepColumn::kEpoch);
    int64_t epoch =
        is_countable(newest_epoch) ? static_cast<int64_t>(newest_epoch) + 1 : 0;
    double rate = history.newest(StepColumn::kImagesPerSecond);
    std::string phase;
    if (live && live->progress.num_epochs > 0) {
      const wire::RunProgress& now = live->progress;
      step = std::max(step, now.step);
      if (now.num_steps > 0) steps = now.num_steps;
      epoch = std::min(now.epoch + 1, now.num_epochs);
      if (now.images_per_second > 0) rate = now.images_per_second;
      phase = wire::to_string(now.phase);
    }
    Json json = {{"epoch", epoch},
                 {"epochs", all_epochs},
                 {"step", step},
                 {"steps", steps},
                 {"images_per_second", number_or_null(rate)},
                 {"eta_seconds", nullptr},
                 {"phase", phase}};
    if (is_running() && rate > 0 && steps >= step && batch() > 0) {
      json["eta_seconds"] =
          static_cast<double>((steps - step) * batch()) / rate;
    }
    return json;
  }

  Json rank_json(int rank) const {
    Json json = {{"rank", rank},
                 {"host", nullptr},
                 {"worker", nullptr},
                 {"state", end().state},
                 {"heartbeat_age", nullptr}};
    if (const auto known = events.workers().find(rank);
        known != events.workers().end()) {
      json["host"] = known->second.hostname;
      json["worker"] = known->second.worker_id;
    }
    plan::MeshCoordinates at;
    double predicted = 0, measured = 0;
    if (plan) {
      const plan::Plan& known = plan->plan();
      if (rank < known.layout.world_size()) {
        at = plan::coordinates_of(known.layout, rank);
      }
      if (static_cast<size_t>(rank) < known.predicted_peak_bytes.size()) {
        predicted = static_cast<double>(
            known.predicted_peak_bytes[static_cast<size_t>(rank)]);
      }
    }
    if (const auto series = history.memory().find(rank);
        series != history.memory().end()) {
      // The series keeps every extreme, so this is the maximum over all steps.
      for (size_t i = 0; i < series->second.size(); ++i) {
        const double bytes =
            series->second.point(i).values[StepHistory::kMeasured];
        if (bytes > measured) measured = bytes;
      }
    }
    json["data"] = at.data_parallel_rank;
    json["stage"] = at.pipeline_stage;
    json["strip"] = at.spatial_rank;
    json["predicted_peak"] = predicted > 0 ? whole_or_null(predicted) : Json();
    json["measured_peak"] = measured > 0 ? whole_or_null(measured) : Json();
    json["images_per_second"] = nullptr;
    return json;
  }

  Json ranks() const {
    Json list = Json::array();
    const int size = plan ? plan->plan().layout.world_size() : 0;
    for (int rank = 0; rank < size; ++rank) list.push_back(rank_json(rank));
    if (!live) return list;
    for (const coordinator::MemberStatus& member : live->members) {
      if (member.rank < 0 || member.rank >= size) continue;
      Json& json = list[static_cast<size_t>(member.rank)];
      json["host"] = member.hostname;
      json["worker"] = member.worker_id;
      if (live->over()) continue;
      json["state"] = to_string(member.state);
      json["heartbeat_age"] = number_or_null(member.heartbeat_age_seconds);
      if (member.measured_peak_bytes > 0 && json["measured_peak"].is_null()) {
        json["measured_peak"] = member.measured_peak_bytes;
      }
    }
    return list;
  }

  Json layout_json() const {
    if (!plan) return nullptr;
    const plan::Plan& known = plan->plan();
    return {{"data", known.layout.data_parallel_size},
            {"pipeline", known.layout.pipeline_parallel_size},
            {"spatial", known.layout.spatial_parallel_size},
            {"zero", known.zero_stage},
            {"text", plan::to_string(known.layout)},
            {"micro_batch", known.micro_batch_size}};
  }

  Json plan_json() const {
    Json json = {{"reason", ""},
                 {"other_layouts", Json::array()},
                 {"lines", Json::array()},
                 {"details", Json::array()}};
    if (!plan) return json;
    for (size_t i = 0; planned && i < planned->details.size(); ++i) {
      const PlannedRun::Detail& detail = planned->details[i];
      json["details"].push_back(
          {{"title", detail.title}, {"text", detail.text}});
    }
    json["reason"] = plan->plan().reason;
    json["lines"] = plan->lines();
    const PlanRecord::Others& others = plan->others();
    json["no_other_layouts"] = others.why_not;
    for (const planner::OtherLayout& other : others.layouts) {
      json["other_layouts"].push_back(
          {{"layout", plan::short_text(other.layout)},
           {"answer", planner::answer_text(other)}});
    }
    return json;
  }

  // The command that starts or continues the run; null if none would.
  Json command() const {
    if (planned) return planned->command;
    const std::string state = end().state;
    if (is_running() || checkpoints.empty() ||
        (state != "stopped" && state != "failed")) {
      return nullptr;
    }
    return "headroom train --resume " + shell_word(directory.string());
  }

  Json best() const {
    if (!epochs.best) return nullptr;
    return {{"epoch", whole_or_null(epochs.best->epoch)},
            {"map50", number_or_null(epochs.best->map50)},
            {"map", number_or_null(epochs.best->map)}};
  }

  Json epoch_rows() const {
    Json list = Json::array();
    for (const std::vector<double>& row : epochs.rows) {
      Json cells = Json::array();
      cells.push_back(whole_or_null(row.front()));
      for (size_t i = 1; i < row.size(); ++i) {
        cells.push_back(number_or_null(row[i]));
      }
      list.push_back(std::move(cells));
    }
    return list;
  }

  int64_t memory_limit() const {
    if (live && live->memory_limit > 0) return live->memory_limit;
    return config ? config->memory_limit : 0;
  }

  std::string id;
  fs::path directory;
  WatchedFile run_file, plan_file, results_file, summary_file;
  StepHistory history;
  EventList events;
  std::optional<configs::RunConfig> config;
  std::string model;
  Json settings = Json::array();
  EpochTable epochs;
  Json per_class;
  std::vector<Picture> pictures;
  std::vector<int64_t> checkpoints;
  std::optional<PlannedRun> planned;
  std::optional<coordinator::RunStatus> live;
  bool held = false;
  std::unique_ptr<PlanRecord> plan;
};

RunRecord::RunRecord(std::string id, fs::path run_directory)
    : state_(std::make_unique<State>(std::move(id), std::move(run_directory))) {
}
RunRecord::RunRecord(const PlannedRun& planned)
    : state_(std::make_unique<State>(planned)) {}
RunRecord::~RunRecord() = default;

const std::string& RunRecord::id() const { return state_->id; }
const fs::path& RunRecord::directory() const { return state_->directory; }
const std::vector<Picture>& RunRecord::pictures() const {
  return state_->pictures;
}
int RunRecord::world_size() const {
  return state_->plan ? state_->plan->plan().layout.world_size() : 0;
}

void RunRecord::refresh(const coordinator::RunStatus* live, bool is_held) {
  state_->refresh(live, is_held);
}

std::string RunRecord::overview() const {
  const State& state = *state_;
  const Json progress = state.progress();
  Json json = {
      {"id", state.id},
      {"state", state.end().state},
      {"model", state.model},
      {"img", state.config ? Json(state.config->image_height) : Json()},
      {"batch", state.config ? Json(state.batch()) : Json()},
      {"processes", world_size()}};
  for (const char* key :
       {"epoch", "epochs", "step", "steps", "images_per_second"}) {
    json[key] = progress[key];
  }
  json["best"] = state.best();
  json["started"] = number_or_null(state.events.started());
  return text_of(json);
}

std::string RunRecord::run(const PictureAddress& address,
                           const std::string& pictures_note) const {
  const State& state = *state_;
  const ShownState end = state.end();
  Json json = {
      {"id", state.id},
      {"directory", state.directory.string()},
      {"state", end.state},
      {"reason", end.reason},
      {"version", state.live && !state.live->version.empty()
                      ? state.live->version
                      : std::string(wire::kVersion)},
      {"command", state.command()},
      {"progress", state.progress()},
      {"settings", state.settings},
      {"epochs",
       {{"columns", state.epochs.columns}, {"rows", state.epoch_rows()}}},
      {"layout", state.layout_json()},
      {"ranks", state.ranks()},
      {"memory_limit", state.memory_limit()},
      {"events", Json::array()},
      {"num_events", state.events.count()},
      {"plan", state.plan_json()},
      {"pictures", Json::array()},
      {"checkpoints", Json::array()},
      {"per_class", state.per_class},
      {"corrupt_lines", state.history.corrupt_lines()}};
  for (const std::string& event : state.events.newest()) {
    json["events"].push_back(Json::parse(event, nullptr, false));
  }
  for (const Picture& picture : state.pictures) {
    const auto url = address(picture);
    if (!url) continue;
    json["pictures"].push_back({{"name", picture.name},
                                {"kind", picture.kind},
                                {"url", *url},
                                {"time", picture.time}});
  }
  if (!pictures_note.empty()) json["pictures_note"] = pictures_note;
  for (const int64_t step : state.checkpoints) {
    json["checkpoints"].push_back({{"step", step}});
  }
  return text_of(json);
}

std::string RunRecord::changes() const {
  const State& state = *state_;
  return text_of({{"state", state.end().state},
                  {"progress", state.progress()},
                  {"ranks", state.ranks()},
                  {"steps", state.history.num_steps()},
                  {"events", state.events.count()},
                  {"epochs", state.epochs.rows.size()}});
}

std::string RunRecord::steps(size_t points, int64_t from) const {
  const StepHistory& history = state_->history;
  Json json = {{"total", history.num_steps()},
               {"columns", Json::array()},
               {"rows", Json::array()},
               {"memory", Json::array()}};
  json["columns"].push_back("step");
  for (const char* column : kStepColumns) json["columns"].push_back(column);
  for (const size_t i : history.steps().chosen(points, from)) {
    const DecimatedSeries::Point point = history.steps().point(i);
    Json row = Json::array();
    row.push_back(point.step);
    for (size_t column = 0; column < point.values.size(); ++column) {
      const bool is_whole = column == static_cast<size_t>(StepColumn::kEpoch) ||
                            column == static_cast<size_t>(StepColumn::kSkipped);
      row.push_back(is_whole ? whole_or_null(point.values[column])
                             : number_or_null(point.values[column]));
    }
    json["rows"].push_back(std::move(row));
  }
  const size_t ranks = std::max<size_t>(1, history.memory().size());
  const size_t most = std::clamp(kMostShownMemory / ranks, kLeastShownMemory,
                                 std::max(points, kLeastShownMemory));
  for (const auto& [rank, series] : history.memory()) {
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

std::optional<std::string> RunRecord::timeline(int rank) const {
  if (rank < 0 || rank >= world_size()) return std::nullopt;
  const PlanRecord::Timeline& timeline = state_->plan->timeline(rank);
  Json json = {
      {"rank", rank},
      {"peak",
       timeline.why_not.empty() ? Json(timeline.step.peak_bytes) : Json()},
      {"points", Json::array()}};
  if (!timeline.why_not.empty()) json["why_not"] = timeline.why_not;
  static constexpr std::array kParts = {"forward", "loss", "backward"};
  for (const predict::PartMemory& part : timeline.step.parts) {
    json["points"].push_back({{"phase", kParts[static_cast<size_t>(part.part)]},
                              {"layer", state_->plan->layer_name(part.layer)},
                              {"kept", part.kept_bytes},
                              {"scratch", part.scratch_bytes}});
  }
  if (timeline.why_not.empty()) {
    json["points"].push_back({{"phase", "commit"},
                              {"layer", ""},
                              {"kept", timeline.step.state_bytes},
                              {"scratch", 0}});
  }
  return text_of(json);
}

std::string json_text(const std::string& text) { return text_of(Json(text)); }

}  // namespace headroom::page
