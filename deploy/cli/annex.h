// The parts of a run that do not train: its page, its report, and
// notifications. deploy/page and deploy/notify do the work; in this folder only
// run_page, page_command and notifications include them. fetch_command includes
// deploy/fetch likewise.
//
// A build with CMake's HEADROOM_ANNEX=OFF has annex_absent.cpp instead of
// run_page.cpp, page_command.cpp, fetch_command.cpp, notifications.cpp and
// event_programs.cpp.
// Such a build refuses the flags of these parts with a one-line error, and
// serves no page by default.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/run_request.h"
#include "parallel/base/terminal.h"
#include "parallel/plan/plan.h"

namespace headroom::cli {

// The newest status of a run, shared with another thread.
class StatusBox {
 public:
  void set(const coordinator::RunStatus& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  // Returns nullopt before the first set().
  std::optional<coordinator::RunStatus> get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<coordinator::RunStatus> status_;
};

using Say = std::function<void(const std::string& line)>;

// --- the page and the report ------------------------------------------------

// Throws Error (exit 2) if --page-controls is given together with --page off.
void check_page_flags(const CommandLine& line);

// Serves the page as --page asks, and prints its address. The page is served
// until the result is destroyed. Returns nullptr with --page off. If the
// address cannot be listened on: throws Error (exit 2) if --page or
// --page-controls is given; otherwise prints a message and returns nullptr.
std::shared_ptr<void> serve_page(
    const CommandLine& line, const std::string& run_directory,
    std::function<std::optional<coordinator::RunStatus>()> status,
    const Say& say);

// Writes report.html into the folder of a run that has committed a step. Does
// nothing while the folder still has an older run's files. A failure is printed
// and does not change the run's exit code.
void leave_report(const std::string& run_directory,
                  const coordinator::RunStatus& status, const Say& say);

// A plan as a file for a browser (headroom plan --report).
struct PlanPage {
  std::string name;
  configs::RunConfig config;
  plan::Plan plan;
  std::string verdict;  // whether the plan fits, with its bytes
  std::string command;  // the command that trains by this plan
  std::string numbers;  // the plan's numbers, as aligned text
};

// Throws Error (exit 2) if --report names no file, or an existing file that is
// not a report and would be overwritten.
void check_plan_page(const std::string& file);

// Throws Error (exit 5) if `file` cannot be written.
void write_plan_page(const std::string& file, const PlanPage& page);

// --- notifications ----------------------------------------------------------

// Starts the programs of --on-event, and those that notify MLflow, a webhook
// and the Kubeflow TrainJob of this pod.
class Notifications {
 public:
  // Creates the notifications that the flags and the environment ask for.
  // Throws Error (exit 2) for flags that cannot be satisfied. If the TrainJob
  // cannot be reached, a line is printed and the run continues. Borrows the
  // terminal.
  static std::unique_ptr<Notifications> requested(const CommandLine& line,
                                                  Terminal& terminal);
  virtual ~Notifications() = default;

  // REQUIRES: the run has not begun to write to its folder.
  virtual void begin(const RunRequest& request) = 0;
  // Pass new events, or the newest status, to the programs.
  virtual void take(const std::vector<wire::EventRecord>& events) = 0;
  virtual void take(const coordinator::RunStatus& status) = 0;
  // Called at the run's end; returns when all programs have ended, or after
  // about 10 s.
  virtual void finish(int exit_code, const std::string& reason) = 0;
};

}  // namespace headroom::cli
