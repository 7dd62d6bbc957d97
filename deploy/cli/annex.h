// What a run has beside it that trains nothing: its page, its report, and
// notifications of what happens to it. deploy/page and deploy/notify do the
// work; no other file of this folder knows them.
//
// A build with CMake's HEADROOM_ANNEX=OFF has annex_absent.cpp instead of
// run_page.cpp, page_command.cpp and notifications.cpp. It refuses in one line
// what is asked for, and serves no page where none is asked for.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/terminal.h"
#include "parallel/plan/plan.h"

namespace headroom::cli {

// The newest status of a run, for another thread.
class StatusBox {
 public:
  void set(const coordinator::RunStatus& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  // Nothing before the first one.
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

// Throws Error (exit 2) where the flags of a run's page contradict each other.
void check_page_flags(const CommandLine& line);

// Serves the page as --page asks, and prints its address. The page is served
// until the result is destroyed. nullptr with --page off, and where the default
// address cannot be listened on, which is printed. Throws Error (exit 2) where
// an address that was given cannot be, and for any address with
// --page-controls.
std::shared_ptr<void> serve_page(
    const CommandLine& line, const std::string& run_directory,
    std::function<std::optional<coordinator::RunStatus>()> status,
    const Say& say);

// Writes report.html into the folder of a run that has committed a step. Does
// nothing while the files there are still an older run's. A failure is printed
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
  std::string numbers;  // the plan's numbers as text of equal widths
};

// Throws Error (exit 2) where --report names no file, or a file that is no
// report and would be lost.
void check_plan_page(const std::string& file);

// Throws Error (exit 5) where `file` cannot be written.
void write_plan_page(const std::string& file, const PlanPage& page);

// --- notifications ----------------------------------------------------------

// MLflow, a webhook, and Kubeflow's TrainJob whose pod this is.
class Notifications {
 public:
  // Those that the flags and the environment ask for. Throws Error (exit 2) for
  // flags that cannot be met. A TrainJob that cannot be told is only printed:
  // no run fails for it. Borrows the terminal.
  static std::unique_ptr<Notifications> requested(const CommandLine& line,
                                                  Terminal& terminal);
  virtual ~Notifications() = default;

  // Whether `newest` of begin() has to be kept up to date.
  virtual bool need_status() const = 0;
  // REQUIRES: the run has not begun to write.
  virtual void begin(const RunRequest& request,
                     std::shared_ptr<const StatusBox> newest) = 0;
  // The run has ended: returns when all is delivered, after 10 s at the latest.
  virtual void finish(int exit_code, const std::string& reason) = 0;
};

}  // namespace headroom::cli
