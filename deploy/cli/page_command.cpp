// headroom page: shows runs in the browser. headroom report: writes runs into
// one file.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "deploy/cli/commands.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/run_page.h"
#include "deploy/page/report.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/units.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

void require_folder(const CommandLine& line, const std::string& usage) {
  if (!line.operands.empty()) return;
  throw Error(line.command, "no run directory is named", "write " + usage);
}

}  // namespace

int page_command(const CommandLine& line) {
  require_folder(line, "headroom page RUN_DIR, for example runs/train/exp");
  page::PageOptions options =
      page_options(line, line.value_of("--listen"), "--listen");
  options.source.places = [folders = line.operands] {
    return records::runs_of_all(folders);
  };
  const interrupts::Watch watch;
  const page::PageServer server(std::move(options));
  std::printf("page:  %s\n", server.address().c_str());
  std::fflush(stdout);
  while (!interrupts::wait(std::chrono::hours(1))) {
  }
  return 0;
}

int report_command(const CommandLine& line) {
  require_folder(line, "headroom report RUN_DIR, for example runs/train/exp");
  page::ReportRequest request;
  request.runs = records::runs_of_all(line.operands);
  request.is_held = is_live;
  fs::path file = line.value_of("--output");
  if (file.empty()) {
    file = request.runs.size() == 1
               ? request.runs.front().directory / run_files::kReport
               : fs::path(run_files::kReport);
  }
  if (!line.has("--exist-ok")) {
    page::require_replaceable(
        file, "name another file with --output FILE, or give --exist-ok");
  }
  const std::string text = page::report_text(request);
  page::write_report(file, text);
  std::printf("report: %s (%s)\n", file.c_str(),
              format_bytes(static_cast<int64_t>(text.size())).c_str());
  return 0;
}

}  // namespace headroom::cli
