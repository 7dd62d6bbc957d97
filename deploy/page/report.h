// The report of runs or of a plan: the page in one HTML file that needs no
// other file, to keep or to mail. At most 10 MB: if the pictures are larger,
// the largest of them are made smaller, and if that is not enough the oldest
// are left out. The report states how many.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deploy/page/run_record.h"
#include "deploy/records/run_places.h"

namespace headroom::page {

inline constexpr size_t kMostReportBytes = 10'000'000;

struct ReportRequest {
  std::vector<records::RunPlace> runs;
  // Whether a coordinator is writing to a folder.
  std::function<bool(const std::filesystem::path&)> is_held;
  // The status of the first run, if the caller has it.
  std::optional<LiveStatus> status;
};

// The report of a run that is planned but not started.
std::string planned_report_text(const PlannedRun& planned);

// Throws Error (exit 2) if there are too many runs for kMostReportBytes.
std::string report_text(const ReportRequest& request);

// Whether the file is a report that headroom wrote.
bool is_report(const std::filesystem::path& file);

// Throws Error (exit 2), with the remedy, if the file exists and is not a
// report that headroom wrote.
void require_replaceable(const std::filesystem::path& file,
                         const std::string& remedy);

// Throws Error (exit 5) if `file` cannot be written.
void write_report(const std::filesystem::path& file, const std::string& text);

}  // namespace headroom::page
