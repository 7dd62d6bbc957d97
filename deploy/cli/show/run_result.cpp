#include "deploy/cli/show/run_result.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "configs/yaml/strict_yaml.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/progress_line.h"
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

std::string metric(const Json& summary, const char* key, const char* name) {
  if (!summary.contains(key) || !summary[key].is_number()) return "";
  const double value = summary[key].get<double>();
  // COCO's -1: there are no such objects.
  return std::string("  ") + name + " " +
         (value < 0 ? "    -" : fixed_text(value, 3));
}

std::string row(const std::string& name, const Json& result) {
  std::string text = "          " + padded(name, 16);
  text += metric(result, "precision", "P") + metric(result, "recall", "R") +
          metric(result, "map50", "mAP50") + metric(result, "map", "mAP");
  // headroom val adds COCO's AP by object size; -1 means that there are none.
  if (result.contains("coco") && result["coco"].is_object()) {
    const auto by_size = [&](const char* size, const char* name) {
      return result["coco"].contains(size)
                 ? metric(result["coco"][size], "AP", name)
                 : "";
    };
    text += " |" + by_size("all", "AP") + by_size("small", "APs") +
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
  return text;
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
      "in:       " + status.run_directory + "\nend:      " + status.reason +
      "\n";
  const std::string best = status.run_directory + "/" + run_files::kWeights +
                           "/" + run_files::kBestWeights;
  if (config.command == "train" && std::filesystem::exists(best)) {
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
  // The reason may contain any bytes that a dying process wrote.
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::optional<WrittenEnd> written_end(
    const std::string& run_directory,
    std::filesystem::file_time_type not_before) {
  const std::filesystem::path file =
      std::filesystem::path(run_directory) / run_files::kSummary;
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error || time < not_before) return std::nullopt;
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Json summary = summary_of(text);
  const std::string reason = summary.value("ended", "");
  if (reason.empty() || !summary.contains("exit_code")) return std::nullopt;
  return WrittenEnd{summary["exit_code"].get<int>(), reason, text};
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

// The last JSON object of a file; an empty object if there is none.
Json last_record(const std::string& file) {
  const std::deque<Json> objects = records::last_objects(file, 1);
  return objects.empty() ? Json::object() : objects.back();
}

// The member under `key`; `otherwise` if it is missing or has another type.
template <typename Value>
Value member_of(const Json& record, const char* key, Value otherwise) {
  const auto found = record.find(key);
  if (found == record.end()) return otherwise;
  const bool fits = std::is_same_v<Value, std::string> ? found->is_string()
                    : std::is_same_v<Value, bool>      ? found->is_boolean()
                                                       : found->is_number();
  return fits ? found->template get<Value>() : otherwise;
}

wire::EventRecord event_of(const Json& record) {
  wire::EventRecord event;
  event.sequence = member_of(record, "sequence", int64_t{0});
  event.event = parse_event_kind(member_of(record, "event", std::string()))
                    .value_or(EventKind{});
  event.step = member_of(record, "step", int64_t{0});
  event.rank = member_of(record, "rank", -1);
  event.reason = member_of(record, "reason", std::string());
  event.warning = member_of(record, "warning", false);
  event.time = member_of(record, "time", std::string());
  event.detail_json =
      record.dump(-1, ' ', false, Json::error_handler_t::replace);
  return event;
}

struct FolderState {
  configs::RunConfig config;
  Json end;   // the run_over event; empty if not written yet
  Json step;  // the last line of steps.jsonl
  bool is_live = false;
  std::string summary_json;
};

FolderState read_folder(const std::string& run_directory) {
  const std::string file = run_directory + "/" + run_files::kRun;
  if (!std::filesystem::exists(file)) {
    throw Error("status", run_directory + " has no " + run_files::kRun,
                "name a run directory, for example runs/train/exp");
  }
  FolderState state;
  state.config =
      configs::parse_run_config(yaml::read_config_file(file, "status"), file);
  state.end = last_record(run_directory + "/" + run_files::kEvents);
  if (state.end.value("event", "") != to_string(EventKind::kRunOver)) {
    state.end = Json::object();
  }
  // A run that was resumed still has the end of the run before it.
  state.is_live = is_live(run_directory);
  if (state.is_live) state.end = Json::object();
  state.step = last_record(run_directory + "/" + run_files::kSteps);
  std::ifstream summary(run_directory + "/" + run_files::kSummary);
  state.summary_json = {std::istreambuf_iterator<char>(summary), {}};
  return state;
}

std::string state_of(const FolderState& state) {
  return state.end.value("state", state.is_live ? "running" : "killed");
}

}  // namespace

std::string folder_summary(const std::string& run_directory) {
  const FolderState folder = read_folder(run_directory);
  coordinator::RunStatus status;
  status.run_directory = run_directory;
  status.reason = folder.end.value(
      "reason", folder.is_live ? "the run goes on"
                               : "none is written: the run was killed");
  status.result_json = folder.summary_json;
  std::string text = "state:    " + state_of(folder);
  if (!folder.end.empty()) text += " at " + folder.end.value("time", "?");
  text += cat("\nprogress: ",
              counted(folder.step.value("step", int64_t{-1}) + 1, "step"),
              ", epoch ", folder.step.value("epoch", int64_t{-1}) + 1, "/",
              folder.config.epochs, "\n", result_text(folder.config, status));
  const int exit_code =
      folder.end.value("exit_code", static_cast<int>(ExitCode::kInterrupted));
  const std::string hint =
      folder.is_live ? "" : resume_hint({exit_code, ""}, run_directory);
  return text + hint + (hint.empty() ? "" : "\n");
}

coordinator::RunStatus folder_status(const std::string& run_directory) {
  constexpr size_t kEvents = 1000;
  constexpr size_t kShownEvents = 20;
  const FolderState folder = read_folder(run_directory);
  coordinator::RunStatus status;
  status.run_directory = run_directory;
  status.state = folder.step.empty() ? coordinator::RunPhase::kWaiting
                                     : coordinator::RunPhase::kRunning;
  status.memory_limit = folder.config.memory_limit;
  wire::RunProgress& progress = status.progress;
  progress.step = member_of(folder.step, "step", int64_t{-1}) + 1;
  progress.epoch = member_of(folder.step, "epoch", int64_t{0});
  progress.num_epochs = folder.config.epochs;
  progress.box = member_of(folder.step, "box", 0.0);
  progress.obj = member_of(folder.step, "obj", 0.0);
  progress.cls = member_of(folder.step, "cls", 0.0);
  progress.images_per_second = member_of(folder.step, "images_per_second", 0.0);
  for (const Json& record : records::last_objects(
           run_directory + "/" + run_files::kEvents, kEvents)) {
    const wire::EventRecord event = event_of(record);
    if (event.event == EventKind::kGeneration) {
      status.generation =
          static_cast<uint64_t>(member_of(record, "generation", int64_t{0}));
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
  for (const Json& rank : folder.step.value("memory", Json::array())) {
    coordinator::MemberStatus member;
    member.rank = member_of(rank, "rank", -1);
    member.state = coordinator::MemberActivity::kRunning;
    member.measured_peak_bytes =
        member_of(rank, "measured_peak_bytes", int64_t{0});
    const auto predicted = member_of(rank, "predicted_peak_bytes", int64_t{0});
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
                   {"state", state_of(folder)},
                   {"reason", folder.end.value("reason", "")},
                   {"steps", folder.step.value("step", int64_t{-1}) + 1},
                   {"epoch", folder.step.value("epoch", int64_t{-1}) + 1},
                   {"num_epochs", folder.config.epochs},
                   {"result", summary_of(folder.summary_json)}};
  if (!folder.end.empty()) document["exit_code"] = folder.end["exit_code"];
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::cli
