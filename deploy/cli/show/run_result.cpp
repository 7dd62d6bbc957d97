#include "deploy/cli/show/run_result.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "configs/run_files.h"
#include "parallel/base/check.h"
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
  char text[64];
  if (value < 0) {  // COCO's -1: there is nothing to find
    std::snprintf(text, sizeof text, "  %s     -", name);
  } else {
    std::snprintf(text, sizeof text, "  %s %.3f", name, value);
  }
  return text;
}

std::string row(const std::string& name, const Json& result) {
  std::string text = "          " + name +
                     std::string(name.size() < 16 ? 16 - name.size() : 0, ' ');
  text += metric(result, "precision", "P") + metric(result, "recall", "R") +
          metric(result, "map50", "mAP50") + metric(result, "map", "mAP");
  // Of headroom val: COCO's definition, by size; -1 is no such object.
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

// COCO's definition over all classes, one line per size of objects.
std::string size_table(const Json& summary) {
  std::string text;
  if (!summary.contains("per_size") || !summary["per_size"].is_object()) {
    return text;
  }
  for (const auto& [name, figures] : summary["per_size"].items()) {
    if (!figures.is_object()) continue;
    const std::string title = "COCO, " + name;
    text += "          " + title +
            std::string(title.size() < 16 ? 16 - title.size() : 0, ' ') +
            metric(figures, "AP", "AP") + metric(figures, "AP50", "AP50") +
            metric(figures, "AP75", "AP75") +
            metric(figures, "AR100", "AR100") + "  of " +
            std::to_string(figures.value("objects", 0)) + " objects\n";
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
  const std::string best = status.run_directory + "/weights/best.safetensors";
  if (config.command == "train" && std::filesystem::exists(best)) {
    text +=
        "judge:    headroom val " +
        (config.data.empty() ? "" : "--data " + shell_word(config.data) + " ") +
        "--weights " + shell_word(best) + "\n";
  }
  return text;
}

std::string result_json(const RunExit& end, const std::string& run_directory,
                        const std::string& summary_json) {
  Json document = summary_of(summary_json);
  document["exit_code"] = end.exit_code;
  document["reason"] = end.reason;
  document["run_directory"] = run_directory;
  // A reason may hold whatever a dying process wrote.
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::optional<WrittenEnd> written_end(
    const std::string& run_directory,
    std::filesystem::file_time_type not_before) {
  const std::filesystem::path file =
      std::filesystem::path(run_directory) / "summary.json";
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

namespace {

// An unfinished checkpoint has no manifest: it is written last.
bool has_finished_checkpoint(const std::string& run_directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  // Its checkpoints are another run's.
  if (fs::exists(fs::path(run_directory) / configs::kOlderRun, error)) {
    return false;
  }
  fs::directory_iterator entry(fs::path(run_directory) / "checkpoints", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (fs::exists(entry->path() / "MANIFEST.json", ignored)) return true;
  }
  return false;
}

}  // namespace

std::string resume_hint(const RunExit& end, const std::string& run_directory) {
  const bool is_resumable =
      end.exit_code == static_cast<int>(ExitCode::kInterrupted) ||
      end.exit_code == static_cast<int>(ExitCode::kResource);
  if (!is_resumable || end.reason.find("--resume") != std::string::npos ||
      !has_finished_checkpoint(run_directory)) {
    return "";
  }
  return "go on with: headroom train --resume " + shell_word(run_directory);
}

}  // namespace headroom::cli
