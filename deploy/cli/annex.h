// The parts of a run that do not train: its page, its report, and
// notifications. deploy/page and deploy/notify do the work; in this folder only
// these files include them.
//
// A build with CMake's HEADROOM_ANNEX=OFF has annex_absent.cpp instead of
// run_page.cpp, page_command.cpp, notifications.cpp and event_programs.cpp. It
// refuses the flags of these parts in one line, and serves no page by default.
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
  // Returns no value before the first status.
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

// Throws Error (exit 2) if the flags of a run's page contradict each other.
void check_page_flags(const CommandLine& line);

// Serves the page as --page asks, and prints its address. The page is served
// until the result is destroyed. Returns nullptr with --page off, or, with a
// message, if the default address cannot be listened on. Throws Error (exit 2)
// if a given address cannot be, or any address with --page-controls.
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
  std::string verdict;  // whether it fits, and how
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
  // The notifications for the flags and the environment. Throws Error (exit 2)
  // for flags that cannot be met. If the TrainJob cannot be reached, only a
  // line is printed and the run goes on. Borrows the terminal.
  static std::unique_ptr<Notifications> requested(const CommandLine& line,
                                                  Terminal& terminal);
  virtual ~Notifications() = default;

  // REQUIRES: the run has not begun to write.
  virtual void begin(const RunRequest& request) = 0;
  // Pass on what is new.
  virtual void take(const std::vector<wire::EventRecord>& events) = 0;
  virtual void take(const coordinator::RunStatus& status) = 0;
  // Called at the run's end; returns when all is delivered, or after 10 s.
  virtual void finish(int exit_code, const std::string& reason) = 0;
};

}  // namespace headroom::cli
