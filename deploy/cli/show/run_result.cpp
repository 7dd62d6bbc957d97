#include "deploy/cli/show/run_result.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "configs/options.h"
#include "configs/yaml/strict_yaml.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/progress_line.h"
#include "deploy/cli/show/status_table.h"
#include "deploy/cli/show/text_table.h"
#include "deploy/records/recent_steps.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

Json summary_of(const std::string& text) {
  Json summary = Json::parse(text, nullptr, false);
  return summary.is_object() ? summary : Json::object();
}

// The texts may contain any bytes that a dying process wrote.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string metric(const Json& summary, const char* key, const char* name) {
  if (!summary.contains(key) || !summary[key].is_number()) return "";
  const double value = summary[key].get<double>();
  // COCO reports -1 if there are no objects to evaluate.
  return std::string("  ") + name + " " +
         (value < 0 ? "    -" : fixed_text(value, 3));
}

std::string row(const std::string& name, const Json& result) {
  std::string text = "          " + padded(name, 16);
  text += metric(result, "precision", "P") + metric(result, "recall", "R") +
          metric(result, "map50", "mAP50") + metric(result, "map", "mAP");
  // headroom val adds COCO's AP by object size; -1: no objects of that size.
  if (result.contains("coco") && result["coco"].is_object()) {
    const auto by_size = [&](const char* size, const char* name) {
      return result["coco"].contains(size)
                 ? metric(result["coco"][size], "AP", name)
                 : "";
    };
    text += " | COCO:" + by_size("all", "AP") + by_size("small", "APs") +
            by_size("medium", "APm") + by_size("large", "APl");
  }
  return text + "\n";
}

// COCO's figures over all classes, one line per object size.
std::string size_table(const Json& summary) {
  std::string text;
  if (!summary.contains("per_size") || !summary["per_size"].is_object()) {
    return text;
  }
  for (const auto& [name, figures] : summary["per_size"].items()) {
    if (!figures.is_object()) continue;
    text +=
        cat("          ", padded("COCO, " + name, 16),
            metric(figures, "AP", "AP"), metric(figures, "AP50", "AP50"),
            metric(figures, "AP75", "AP75"), metric(figures, "AR100", "AR100"),
            "  of ", figures.value("objects", 0), " objects\n");
  }
  return text +
         "          P, R, mAP50 and mAP are YOLOv5's; AP and AR are COCO's: "
         "small is below\n          32 x 32 pixels, large above 96 x 96, and - "
         "means "
         "that there is none\n";
}

// One line per class that has labels.
std::string class_table(const Json& summary) {
  std::string text;
  if (!summary.contains("per_class") || !summary["per_class"].is_array()) {
    return text;
  }
  for (const Json& result : summary["per_class"]) {
    if (!result.is_object() || result.value("labels", 0) == 0) continue;
    text += row(result.value("name", "?"), result);
  }
  return text;
}

// The --img flag for validating the weights; "" if val's default is right.
std::string size_flag(const configs::RunConfig& config) {
  const configs::RunConfig usual;
  if (config.image_height == usual.image_height &&
      config.image_width == usual.image_width) {
    return "";
  }
  const std::string height = std::to_string(config.image_height);
  return " --img " + height +
         (config.image_width == config.image_height
              ? ""
              : cat(" ", config.image_width));
}

}  // namespace

std::string result_text(const configs::RunConfig& config,
                        const coordinator::RunStatus& status) {
  const Json summary = summary_of(status.result_json);
  const std::string metrics =
      metric(summary, "precision", "P") + metric(summary, "recall", "R") +
      metric(summary, "map50", "mAP50") + metric(summary, "map", "mAP");
  std::string text =
      "results:" + (metrics.empty() ? "  (no validation)" : metrics) + "\n" +
      class_table(summary) + size_table(summary) +
      "in:       " + folder_text(status) + "\nend:      " + status.reason +
      "\n";
  const std::string best = status.run_directory + "/" + run_files::kWeights +
                           "/" + run_files::kBestWeights;
  std::error_code ignored;
  if (config.command == "train" && std::filesystem::exists(best, ignored) &&
      !is_elsewhere(status.run_directory, status.folder)) {
    text +=
        "judge:    headroom val " +
        (config.data.empty() ? "" : "--data " + shell_word(config.data) + " ") +
        "--weights " + shell_word(best) + size_flag(config) +
        (config.single_cls ? " --single-cls" : "") + "\n";
  }
  return text;
}

std::string result_json(const RunExit& end, const std::string& run_directory,
                        const std::string& summary_json) {
  Json document = summary_of(summary_json);
  document["exit_code"] = end.exit_code;
  document["reason"] = end.reason;
  document["run_directory"] = run_directory;
  return text_of(document);
}

std::optional<WrittenEnd> written_end(
    const std::string& run_directory,
    std::filesystem::file_time_type not_before) {
  const std::filesystem::path file =
      std::filesystem::path(run_directory) / run_files::kSummary;
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error || time < not_before) return std::nullopt;
  const Json summary = records::object_in(file);
  const std::string reason = records::text_member(summary, "ended");
  if (reason.empty() || !summary.contains("exit_code")) return std::nullopt;
  return WrittenEnd{summary["exit_code"].get<int>(), reason, text_of(summary)};
}

std::string resume_hint(const RunExit& end, const std::string& run_directory) {
  const bool is_resumable =
      end.exit_code == static_cast<int>(ExitCode::kInterrupted) ||
      end.exit_code == static_cast<int>(ExitCode::kResource);
  if (!is_resumable || end.says_how_to_go_on ||
      records::checkpoints_in(run_directory).empty()) {
    return "";
  }
  return "go on with: headroom train --resume " + shell_word(run_directory);
}

namespace {

wire::EventRecord event_of(const records::EventLine& line) {
  return {.sequence = line.sequence,
          .event = parse_event_kind(line.kind).value_or(EventKind{}),
          .step = line.step,
          .rank = line.rank,
          .reason = line.reason,
          .detail_json = line.json,
          .warning = line.warning,
          .time = line.time};
}

// Returns 0 for a number that a step lacks.
double known(double number) { return std::isfinite(number) ? number : 0; }

int64_t bytes_of(double bytes) {
  return std::llround(std::clamp(known(bytes), 0.0, 0x1p53));
}

struct FolderState {
  configs::RunConfig config;
  // The run_over event, if it is written.
  std::optional<records::EventLine> end;
  std::optional<records::StepLine> step;  // the last step
  bool is_live = false;
  Json summary;

  int64_t num_steps() const { return step ? step->step + 1 : 0; }
  int64_t num_begun_epochs() const {
    return step ? step->epoch.value_or(-1) + 1 : 0;
  }
  std::string state() const {
    if (end && !end->state.empty()) return end->state;
    return is_live ? "running" : "killed";
  }
};

FolderState read_folder(const std::string& run_directory) {
  const std::string file = run_directory + "/" + run_files::kRun;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw Error("status", run_directory + " has no " + run_files::kRun,
                "name a run directory, for example runs/train/exp");
  }
  FolderState state;
  state.config =
      configs::parse_run_config(yaml::read_config_file(file, "status"), file);
  // The run_over event of a live run was written before the run was resumed.
  state.is_live = is_live(run_directory);
  for (records::EventLine& newest : records::last_events(run_directory, 1)) {
    if (newest.kind == to_string(EventKind::kRunOver) && !state.is_live) {
      state.end = std::move(newest);
    }
  }
  state.step = records::last_step(run_directory);
  state.summary = records::object_in(std::filesystem::path(run_directory) /
                                     run_files::kSummary);
  return state;
}

}  // namespace

std::string folder_summary(const std::string& run_directory) {
  const FolderState folder = read_folder(run_directory);
  coordinator::RunStatus status;
  status.run_directory = run_directory;
  status.reason = folder.end       ? folder.end->reason
                  : folder.is_live ? "the run goes on"
                                   : "none is written: the run was killed";
  status.result_json = text_of(folder.summary);
  const std::string text =
      cat("state:    ", folder.state(),
          folder.end ? " at " + folder.end->time : std::string(),
          "\nprogress: ", counted(folder.num_steps(), "step"), ", epoch ",
          folder.num_begun_epochs(), "/", folder.config.epochs, "\n",
          result_text(folder.config, status));
  if (folder.is_live) return text;
  const int exit_code =
      static_cast<int>(folder.end && folder.end->exit_code
                           ? *folder.end->exit_code
                           : static_cast<int64_t>(ExitCode::kInterrupted));
  const std::string hint = resume_hint({exit_code, ""}, run_directory);
  return text + hint + (hint.empty() ? "" : "\n");
}

coordinator::RunStatus folder_status(const std::string& run_directory) {
  constexpr size_t kEvents = 1000;
  constexpr size_t kShownEvents = 20;
  const FolderState folder = read_folder(run_directory);
  coordinator::RunStatus status;
  status.run_directory = run_directory;
  status.state = folder.step ? coordinator::RunPhase::kRunning
                             : coordinator::RunPhase::kWaiting;
  status.memory_limit = folder.config.memory_limit;
  wire::RunProgress& progress = status.progress;
  progress.num_epochs = folder.config.epochs;
  if (folder.step) {
    progress.step = folder.step->step + 1;
    progress.epoch = folder.step->epoch.value_or(0);
    progress.losses = folder.step->losses;
    progress.images_per_second = known(records::median_speed(run_directory));
  }
  for (const records::EventLine& line :
       records::last_events(run_directory, kEvents)) {
    const wire::EventRecord event = event_of(line);
    if (event.event == EventKind::kGeneration) {
      status.generation = static_cast<uint64_t>(line.generation.value_or(0));
      status.reason = event.reason;
    }
    if (event.event == EventKind::kEpoch) {
      const auto trained = trained_epoch(event);
      if (trained) progress.steps_per_epoch = event.step / (trained->epoch + 1);
    }
    status.events.push_back(event);
  }
  if (status.events.size() > kShownEvents) {
    status.events.erase(status.events.begin(),
                        status.events.end() - kShownEvents);
  }
  progress.num_steps = progress.steps_per_epoch * progress.num_epochs;
  progress.step_in_epoch =
      progress.step - progress.epoch * progress.steps_per_epoch;
  status.plan.emplace();
  if (!folder.step) return status;
  for (const records::StepLine::Rank& rank : folder.step->memory) {
    coordinator::MemberStatus member;
    member.rank = rank.rank;
    member.state = coordinator::MemberActivity::kRunning;
    member.measured_peak_bytes = bytes_of(rank.measured_peak_bytes);
    const int64_t predicted = bytes_of(rank.predicted_peak_bytes);
    if (member.rank == 0) {
      progress.measured_peak_bytes = member.measured_peak_bytes;
      progress.predicted_peak_bytes = predicted;
    }
    status.plan->predicted_phase_bytes.push_back({.training = predicted});
    status.members.push_back(member);
  }
  return status;
}

std::string folder_summary_json(const std::string& run_directory) {
  const FolderState folder = read_folder(run_directory);
  Json document = {{"run_directory", run_directory},
                   {"state", folder.state()},
                   {"reason", folder.end ? folder.end->reason : std::string()},
                   {"steps", folder.num_steps()},
                   {"epoch", folder.num_begun_epochs()},
                   {"num_epochs", folder.config.epochs},
                   {"result", folder.summary}};
  if (folder.end && folder.end->exit_code) {
    document["exit_code"] = *folder.end->exit_code;
  }
  return text_of(document);
}

namespace {

// A run's figures for comparing it with others; numbers are NaN if unknown.
struct ComparedRun {
  std::string id, state;
  std::optional<configs::RunConfig> config;
  double map50 = std::nan(""), map = std::nan(""), peak_bytes = std::nan(""),
         images_per_second = std::nan(""), seconds = std::nan("");
  Json record = Json::object();  // what JSON has beside the table's columns
};

double number_in(const Json& summary, const char* key) {
  return summary.contains(key) && summary[key].is_number()
             ? summary[key].get<double>()
             : std::nan("");
}

// The run's length, best epoch, last loss and repeated steps, as far as its
// files say them.
Json record_of(const FolderState& folder) {
  Json record;
  for (const char* key :
       {"precision", "recall", "best_epoch", "epochs", "retries"}) {
    record[key] = folder.summary.value(key, Json());
  }
  record["steps"] = folder.num_steps();
  record["loss"] = folder.step ? Json(folder.step->loss) : Json();
  record["generations"] = folder.step && folder.step->generation
                              ? Json(*folder.step->generation)
                              : Json();
  return record;
}

double peak_of(const FolderState& folder) {
  double peak = std::nan("");
  const auto add = [&](double bytes) { peak = std::fmax(peak, bytes); };
  if (folder.summary.contains("peak_bytes")) {
    for (const Json& bytes : folder.summary["peak_bytes"]) {
      if (bytes.is_number()) add(bytes.get<double>());
    }
  }
  // A run that was killed, or still trains, has no summary.
  if (folder.step) {
    for (const auto& rank : folder.step->memory) add(rank.measured_peak_bytes);
  }
  return peak;
}

ComparedRun compared(const records::RunPlace& place) {
  const std::string directory = place.directory.string();
  ComparedRun run;
  run.id = place.id;
  FolderState folder;
  try {
    folder = read_folder(directory);
  } catch (const Error&) {
    run.state = "its run.yaml cannot be read";
    return run;
  }
  run.state = folder.state();
  run.config = folder.config;
  run.map50 = number_in(folder.summary, "map50");
  run.map = number_in(folder.summary, "map");
  run.seconds = number_in(folder.summary, "wall_seconds");
  run.peak_bytes = peak_of(folder);
  run.images_per_second = records::median_speed(directory);
  run.record = record_of(folder);
  return run;
}

std::vector<ComparedRun> compared_runs(
    const std::vector<records::RunPlace>& places) {
  std::vector<ComparedRun> runs;
  for (const records::RunPlace& place : places) {
    runs.push_back(compared(place));
  }
  return runs;
}

std::vector<const configs::Option*> differing_options(
    const std::vector<ComparedRun>& runs) {
  std::vector<const configs::Option*> differing;
  for (const configs::Option& option : configs::run_options()) {
    if (!configs::distinguishes_runs(option)) continue;
    std::set<std::string> values;
    for (const ComparedRun& run : runs) {
      if (run.config) values.insert(configs::value_text(*run.config, option));
    }
    if (values.size() > 1) differing.push_back(&option);
  }
  return differing;
}

std::string settings_text(
    const ComparedRun& run,
    const std::vector<const configs::Option*>& differing) {
  constexpr size_t kShown = 6;
  if (!run.config) return "-";
  std::string text;
  for (size_t i = 0; i < std::min(differing.size(), kShown); ++i) {
    const configs::Option& option = *differing[i];
    const std::string value = configs::value_text(*run.config, option);
    text += cat(i > 0 ? " " : "", configs::table_name(option), "=",
                short_line(shell_word(value), 60));
  }
  if (differing.size() > kShown) {
    text += cat(" and ", differing.size() - kShown, " more");
  }
  return text.empty() ? "the same" : text;
}

std::string shown_or_dash(double value, const std::string& text) {
  return std::isnan(value) ? "-" : text;
}

}  // namespace

std::string runs_table(const std::vector<records::RunPlace>& places) {
  const std::vector<ComparedRun> runs = compared_runs(places);
  const auto differing = differing_options(runs);
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "mAP50", "mAP", "peak", "images/s", "time", "settings"}};
  for (const ComparedRun& run : runs) {
    rows.push_back(
        {run.id, run.state, shown_or_dash(run.map50, fixed_text(run.map50, 3)),
         shown_or_dash(run.map, fixed_text(run.map, 3)),
         shown_or_dash(run.peak_bytes, format_bytes(bytes_of(run.peak_bytes))),
         shown_or_dash(run.images_per_second,
                       fixed_text(run.images_per_second, 1)),
         shown_or_dash(run.seconds, format_seconds(known(run.seconds))),
         settings_text(run, differing)});
  }
  return text_table(rows);
}

std::string runs_json(const std::vector<records::RunPlace>& places) {
  const std::vector<ComparedRun> runs = compared_runs(places);
  const auto differing = differing_options(runs);
  const auto number = [](double value) {
    return std::isnan(value) ? Json() : Json(value);
  };
  Json document = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const ComparedRun& run = runs[i];
    Json settings = Json::object();
    for (const configs::Option* option : differing) {
      if (run.config) {
        settings[configs::table_name(*option)] =
            configs::value_text(*run.config, *option);
      }
    }
    document.push_back(
        {{"run", run.id},
         {"folder", std::filesystem::absolute(places[i].directory).string()},
         {"state", run.state},
         {"map50", number(run.map50)},
         {"map", number(run.map)},
         {"peak_bytes",
          std::isnan(run.peak_bytes) ? Json() : Json(bytes_of(run.peak_bytes))},
         {"images_per_second", number(run.images_per_second)},
         {"seconds", number(run.seconds)},
         {"settings", settings}});
    document.back().update(run.record);
  }
  return text_of(document);
}

}  // namespace headroom::cli
