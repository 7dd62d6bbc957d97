// What a run leaves in its directory: the name of each file where it is written
// and read, and what the guide's reference page says of it.
#pragma once

#include <string>
#include <vector>

namespace headroom::run_files {

inline constexpr const char* kPlan = "plan.json";
inline constexpr const char* kRun = "run.yaml";
inline constexpr const char* kModel = "model.yaml";
inline constexpr const char* kSteps = "steps.jsonl";
inline constexpr const char* kEvents = "events.jsonl";
inline constexpr const char* kResults = "results.csv";
inline constexpr const char* kSummary = "summary.json";
inline constexpr const char* kJudgement = "results.json";
inline constexpr const char* kDataReport = "data_report.txt";
// Folders.
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kCheckpoints = "checkpoints";
inline constexpr const char* kLogs = "logs";

struct Description {
  std::vector<std::string>
      names;  // of files or folders; N and * stand for more
  std::string content;
};

std::vector<Description> descriptions();

}  // namespace headroom::run_files
