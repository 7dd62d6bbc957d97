// The report of runs, or of a plan: the page in one HTML file that needs
// nothing beside it, to keep or to mail. At most 2 MB: the newest pictures that
// fit are in it, and it says how many are not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/run_status.h"
#include "deploy/page/run_places.h"
#include "deploy/page/run_record.h"

namespace headroom::page {

inline constexpr size_t kMostReportBytes = 2'000'000;

struct ReportRequest {
  std::vector<RunPlace> runs;
  // Whether a coordinator writes a folder.
  std::function<bool(const std::filesystem::path&)> is_held;
  // The status of the first run, where somebody has it.
  std::optional<coordinator::RunStatus> status;
};

// The report of a run that is planned and not started.
std::string planned_report_text(const PlannedRun& planned);

// Throws Error (exit 2) where so many runs make no report of that size.
std::string report_text(const ReportRequest& request);

// Whether the file is a report that headroom wrote.
bool is_report(const std::filesystem::path& file);

// Throws Error where `file` cannot be written (exit 5), and, unless it
// `may_replace`, where it is something else than a report (exit 2).
void write_report(const std::filesystem::path& file, const std::string& text,
                  bool may_replace);

}  // namespace headroom::page
