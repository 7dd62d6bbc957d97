// headroom status: what a coordinator's run is doing.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "coordinator/service/control_client.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/ledger.h"
#include "deploy/cli/show/run_result.h"
#include "deploy/cli/show/status_table.h"
#include "parallel/base/check.h"
#include "proto/connection_fault.h"

namespace headroom::cli {
namespace {

void show(const coordinator::RunStatus& status, bool json, bool on_top) {
  if (on_top) std::fputs("\033[H\033[J", stdout);
  const std::string text =
      json ? status_json(status) + "\n" : status_table(status);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

coordinator::RunStatus status_of(coordinator::ControlClient& client,
                                 const std::string& address) {
  try {
    return client.status();
  } catch (const CommunicationError& error) {
    const auto fault =
        wire::connection_fault(address, wire::channel_security());
    throw Error("status", fault ? fault->what : error.what(),
                fault ? fault->remedy : "ask again in a moment",
                ExitCode::kResource);
  }
}

// Exit 4: the files contradict themselves.
int show_ledger(const CommandLine& line) {
  if (line.run_directories.empty()) {
    throw Error("status", "--ledger wants a run directory",
                "write headroom status RUN_DIR --ledger");
  }
  const LedgerReport report = check_ledger_of(line.run_directories.front());
  std::fputs(
      (line.has("--json") ? ledger_json(report) + "\n" : ledger_text(report))
          .c_str(),
      stdout);
  return report.exact() ? 0 : static_cast<int>(ExitCode::kData);
}

// Shows the folder's status; --watch repeats it each second until the run ends.
int show_folder(const CommandLine& line) {
  const std::string& folder = line.run_directories.front();
  const bool json = line.has("--json");
  const bool watch = line.has("--watch");
  const bool on_top = watch && !json && isatty(STDOUT_FILENO) == 1;
  const interrupts::Watch watching;
  while (true) {
    const bool goes_on = watch && is_live(folder);
    const std::string text =
        json ? folder_summary_json(folder) + "\n"
             : folder_summary(folder);
    std::fputs(((on_top ? "\033[H\033[J" : "") + text).c_str(), stdout);
    std::fflush(stdout);
    if (!goes_on || interrupts::count() > 0 || std::ferror(stdout) != 0) {
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

int status_command(const CommandLine& line) {
  if (line.has("--ledger")) return show_ledger(line);
  if (!line.run_directories.empty() && line.has("--coordinator")) {
    throw Error("status", "a run directory and --coordinator are both given",
                "name one of them");
  }
  if (!line.run_directories.empty()) return show_folder(line);
  if (!line.has("--coordinator")) {
    throw Error("status", "no coordinator is named",
                "give --coordinator HOST:PORT, or a run directory");
  }
  const std::string address = line.value_of("--coordinator");
  host_of(address, "--coordinator");
  take_identity(line, address);
  const std::unique_ptr<coordinator::ControlClient> client =
      coordinator::ControlClient::connect(address);
  const bool json = line.has("--json");
  const bool watch = line.has("--watch");
  const bool on_top = watch && !json && isatty(STDOUT_FILENO) == 1;
  coordinator::RunStatus status = status_of(*client, address);
  show(status, json, on_top);
  const interrupts::Watch watching;
  while (watch && !status.over() && interrupts::count() == 0 &&
         std::ferror(stdout) == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    try {
      status = client->status();
    } catch (const CommunicationError&) {
      break;  // the coordinator has ended with its run
    }
    show(status, json, on_top);
  }
  return 0;
}

}  // namespace headroom::cli
