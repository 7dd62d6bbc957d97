#include "deploy/cli/run_page.h"

#include <exception>
#include <filesystem>
#include <utility>

#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/status_table.h"
#include "deploy/page/report.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOff = "off";

page::LiveStatus live_status(const coordinator::RunStatus& status) {
  return {.json = status_json(status), .plan = status.plan};
}

records::RunPlace place_of(const std::string& run_directory) {
  const fs::path folder(run_directory);
  return {folder.filename().string(), folder};
}

}  // namespace

page::PageOptions page_options(const CommandLine& line,
                               const std::string& listen,
                               const std::string& flag) {
  page::PageOptions options;
  options.listen = listen;
  options.flag = flag;
  options.insecure_network = line.has("--insecure-network");
  options.source.is_held = is_live;
  if (!wire::is_loopback(host_of(listen, flag))) {
    options.security = wire::read_channel_security(
        line.value_of("--certs"), line.value_of("--token-file"),
        wire::ChannelSide::kServer);
  }
  return options;
}

void check_page_flags(const CommandLine& line) {
  if (line.has("--page-controls") && line.value_of("--page") == kOff) {
    throw Error("command line", "--page-controls needs the page, which is off",
                "leave out --page off, or --page-controls");
  }
}

std::shared_ptr<void> serve_page(
    const CommandLine& line, const std::string& run_directory,
    std::function<std::optional<coordinator::RunStatus>()> status,
    const Say& say) {
  const std::string listen = line.value_of("--page");
  if (listen.empty() || listen == kOff) return nullptr;
  const bool is_wanted = line.has("--page") || line.has("--page-controls");
  try {
    page::PageOptions options = page_options(line, listen, "--page");
    const records::RunPlace place = place_of(run_directory);
    options.source.places = [place] { return std::vector{place}; };
    options.source.live =
        [status = std::move(status)]() -> std::optional<page::LiveStatus> {
      const std::optional<coordinator::RunStatus> now = status();
      if (!now) return std::nullopt;
      return live_status(*now);
    };
    options.source.live_id = place.id;
    if (line.has("--page-controls")) {
      options.stop = interrupts::request;
    }
    auto server = std::make_shared<page::PageServer>(std::move(options));
    say("page:  " + server->address());
    return server;
  } catch (const Error& error) {
    if (is_wanted) throw;
    say("page:  not served, for it " + error.text());
    return nullptr;
  } catch (const std::exception& error) {
    if (is_wanted) throw;
    say(std::string("page:  not served: ") + error.what());
    return nullptr;
  }
}

void leave_report(const std::string& run_directory,
                  const coordinator::RunStatus& status, const Say& say) {
  std::error_code ignored;
  const fs::path folder(run_directory);
  // The files there may belong to an older run.
  if (!fs::exists(folder / run_files::kSteps, ignored) ||
      fs::exists(folder / run_files::kOlderRun, ignored)) {
    return;
  }
  page::ReportRequest request;
  request.runs = {place_of(run_directory)};
  if (status.over()) request.status = live_status(status);
  try {
    const fs::path file = folder / run_files::kReport;
    page::require_replaceable(file, "headroom report writes another");
    page::write_report(file, page::report_text(request));
  } catch (const std::exception& error) {
    say(std::string("the report could not be written: ") + error.what());
  }
}

void check_plan_page(const std::string& file) {
  if (file.empty()) {
    throw Error("command line", "--report names no file",
                "write --report plan.html");
  }
  page::require_replaceable(file, "name another file with --report FILE");
}

void write_plan_page(const std::string& file, const PlanPage& page) {
  page::write_report(file, page::planned_report_text(
                               {.name = page.name,
                                .config = page.config,
                                .plan = page.plan,
                                .verdict = page.verdict,
                                .command = page.command,
                                .details = {{"In numbers", page.numbers}}}));
}

}  // namespace headroom::cli
