#include "deploy/launch/run_result.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "configs/shell_word.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

Json summary_of(const std::string& text) {
  Json summary = Json::parse(text, nullptr, false);
  return summary.is_object() ? summary : Json::object();
}

std::string metric(const Json& summary, const char* key, const char* name) {
  if (!summary.contains(key) || !summary[key].is_number()) return "";
  char text[64];
  std::snprintf(text, sizeof text, "  %s %.3f", name,
                summary[key].get<double>());
  return text;
}

std::string row(const std::string& name, const Json& result) {
  std::string text = "          " + name +
                     std::string(name.size() < 16 ? 16 - name.size() : 0, ' ');
  return text + metric(result, "precision", "P") +
         metric(result, "recall", "R") + metric(result, "map50", "mAP50") +
         metric(result, "map", "mAP") + "\n";
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

std::string result_text(const RunConfig& config, const RunStatus& status) {
  const Json summary = summary_of(status.result_json);
  const std::string metrics =
      metric(summary, "precision", "P") + metric(summary, "recall", "R") +
      metric(summary, "map50", "mAP50") + metric(summary, "map", "mAP");
  std::string text =
      "results:" + (metrics.empty() ? "  (no validation)" : metrics) + "\n" +
      class_table(summary) + "in:       " + status.run_directory +
      "\nend:      " + status.reason + "\n";
  const std::string best = status.run_directory + "/weights/best.safetensors";
  if (config.command == "train" && std::filesystem::exists(best)) {
    text +=
        "judge:    headroom val " +
        (config.data.empty() ? "" : "--data " + shell_word(config.data) + " ") +
        "--weights " + shell_word(best) + "\n";
  }
  return text;
}

std::string result_json(const RunEnd& end, const std::string& run_directory,
                        const std::string& summary_json) {
  Json document = summary_of(summary_json);
  document["exit_code"] = end.exit_code;
  document["reason"] = end.reason;
  document["run_directory"] = run_directory;
  // A reason may hold whatever a dying process wrote.
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

namespace {

// An unfinished checkpoint has no manifest: it is written last.
bool has_finished_checkpoint(const std::string& run_directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator entry(fs::path(run_directory) / "checkpoints", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (fs::exists(entry->path() / "MANIFEST.json", ignored)) return true;
  }
  return false;
}

}  // namespace

std::string resume_hint(const RunEnd& end, const std::string& run_directory) {
  const bool is_resumable =
      end.exit_code == static_cast<int>(ExitCode::kInterrupted) ||
      end.exit_code == static_cast<int>(ExitCode::kResource);
  if (!is_resumable || end.reason.find("--resume") != std::string::npos ||
      !has_finished_checkpoint(run_directory)) {
    return "";
  }
  return "go on with: headroom train --resume " + shell_word(run_directory);
}

}  // namespace headroom
