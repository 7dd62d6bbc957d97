// headroom status: the state of a run, from its coordinator or its folder.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/service/control_client.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/ledger.h"
#include "deploy/cli/show/run_result.h"
#include "deploy/cli/show/status_page.h"
#include "deploy/cli/show/status_table.h"
#include "deploy/records/older_copy.h"
#include "deploy/records/run_places.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/terminal.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "proto/connection_fault.h"

namespace headroom::cli {
namespace {

constexpr auto kWatchPause = std::chrono::seconds(1);
// Calls in a row that fail before --watch takes the coordinator for ended.
constexpr int kFailuresOfTheDead = 3;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Prints a status as JSON with --json, as a page or lines of news with --watch,
// otherwise as a table.
class Shown {
 public:
  explicit Shown(const CommandLine& line)
      : json_(line.has("--json")),
        watch_(line.has("--watch")),
        style_(terminal_style_of(STDOUT_FILENO)),
        page_(style_) {}

  void status(const coordinator::RunStatus& status) {
    if (json_) return print(status_json(status) + "\n");
    if (!watch_) return print(printable(status_table(status)));
    const auto now = std::chrono::steady_clock::now();
    if (!style_.rewrites_lines) {
      for (const std::string& line : page_.news(status, now)) {
        print(line + "\n");
      }
      return;
    }
    print(redraw(page_.lines(status, terminal_size_of(STDOUT_FILENO), now),
                 !std::exchange(is_drawn_, true)));
  }

 private:
  const bool json_, watch_;
  const TerminalStyle style_;
  StatusPage page_;
  bool is_drawn_ = false;
};

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

// Returns exit code 4 if the files contradict each other.
int show_ledger(const CommandLine& line) {
  if (line.operands.size() != 1) {
    throw Error("status", "--ledger wants a run directory",
                "write headroom status RUN_DIR --ledger");
  }
  const LedgerReport report = check_ledger_of(line.operands.front());
  std::fputs(
      (line.has("--json") ? ledger_json(report) + "\n" : ledger_text(report))
          .c_str(),
      stdout);
  return report.exact() ? 0 : static_cast<int>(ExitCode::kData);
}

// Prints a table of the runs in the folders.
int show_runs(const CommandLine& line) {
  const std::vector<records::RunPlace> runs =
      records::runs_of_all(line.operands);
  if (line.has("--watch")) {
    std::string folders;
    for (const std::string& folder : line.operands) {
      folders += " " + shell_word(folder);
    }
    throw Error(
        "status",
        cat("--watch follows one run, and", folders, " ",
            line.operands.size() > 1 ? "are" : "is", " more"),
        "name one run, or see all of them with headroom page" + folders);
  }
  const std::string text =
      line.has("--json") ? runs_json(runs) + "\n" : runs_table(runs);
  print(line.has("--json") ? text : printable(text));
  return 0;
}

// Prints the status of a folder; --watch follows a live run until it ends.
int show_folder(const CommandLine& line) {
  const std::string& folder = line.operands.front();
  const bool json = line.has("--json");
  Shown shown(line);
  const interrupts::Watch watching;
  while (line.has("--watch") && is_live(folder) && interrupts::count() == 0 &&
         std::ferror(stdout) == 0) {
    if (json) {
      print(folder_summary_json(folder) + "\n");
    } else {
      shown.status(folder_status(folder));
    }
    interrupts::wait(kWatchPause);
  }
  if (interrupts::count() > 0 || std::ferror(stdout) != 0) return 0;
  print(json ? folder_summary_json(folder) + "\n"
             : printable(folder_summary(folder)));
  return 0;
}

}  // namespace

int status_command(const CommandLine& line) {
  if (line.has("--ledger")) return show_ledger(line);
  if (!line.operands.empty() && line.has("--coordinator")) {
    throw Error("status", "a run directory and --coordinator are both given",
                "name one of them");
  }
  if (!line.operands.empty()) {
    const bool is_alone = line.operands.size() == 1;
    for (const std::string& folder : line.operands) {
      const auto copy = records::older_copy(folder);
      if (!copy) continue;
      const FolderPlace& place = copy->newest;
      const std::string path = std::filesystem::absolute(folder).string();
      if (is_alone && !records::is_run(folder)) {
        throw Error("status", where_it_is(path, place),
                    how_to_reach_it(path, place));
      }
      std::fprintf(stderr, "%s\n", where_it_is(path, place).c_str());
    }
    const bool is_one = is_alone && records::is_run(line.operands.front());
    return is_one ? show_folder(line) : show_runs(line);
  }
  if (!line.has("--coordinator")) {
    throw Error("status", "no coordinator is named",
                "give --coordinator HOST:PORT, or a run directory");
  }
  const std::string address = line.value_of("--coordinator");
  host_of(address, "--coordinator");
  take_identity(line, address);
  const std::unique_ptr<coordinator::ControlClient> client =
      coordinator::ControlClient::connect(address);
  Shown shown(line);
  coordinator::RunStatus status = status_of(*client, address);
  shown.status(status);
  const interrupts::Watch watching;
  int failures = 0;
  while (line.has("--watch") && !status.over() && interrupts::count() == 0 &&
         std::ferror(stdout) == 0) {
    interrupts::wait(kWatchPause);
    try {
      status = client->status();
      failures = 0;
    } catch (const CommunicationError&) {
      // During a flood a single call may fail.
      if (++failures < kFailuresOfTheDead) continue;
      // The coordinator has ended with its run: the last status is outdated.
      std::fprintf(stderr,
                   "the coordinator has left: headroom status %s says how the "
                   "run ended\n",
                   shell_word(status.run_directory).c_str());
      break;
    }
    shown.status(status);
  }
  return 0;
}

}  // namespace headroom::cli
