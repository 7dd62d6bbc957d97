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

// Throws Error (exit 2), with the remedy, where the file is there and no
// report.
void require_replaceable(const std::filesystem::path& file,
                         const std::string& remedy);

// Throws Error (exit 5) where `file` cannot be written.
void write_report(const std::filesystem::path& file, const std::string& text);

}  // namespace headroom::page
