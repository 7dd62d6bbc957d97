// The page of a run that this process supervises, and its final report.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "coordinator/run/run_status.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/page/page_server.h"

namespace headroom::cli {

// The newest status of a run, shared between threads.
class StatusBox {
 public:
  void set(const coordinator::RunStatus& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  // nullopt before the first status.
  std::optional<coordinator::RunStatus> get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<coordinator::RunStatus> status_;
};

// Options for a page at the address `listen`, which was given with `flag`.
// Beyond loopback they include --certs, --token-file and --insecure-network.
page::PageOptions page_options(const CommandLine& line,
                               const std::string& listen,
                               const std::string& flag);

// Throws Error (exit 2) if the flags of a run's page contradict each other.
void check_page_flags(const CommandLine& line);

using Say = std::function<void(const std::string& line)>;

// Serves the page as --page asks, while the returned object lives, and prints
// its address. Returns nullptr with --page off, and if the default address
// cannot be used (printed). Throws Error (exit 2) if an address that was given
// cannot be used, or any address with --page-controls.
std::unique_ptr<page::PageServer> serve_page(
    const CommandLine& line, const std::string& run_directory,
    std::function<std::optional<coordinator::RunStatus>()> status,
    const Say& say);

// Writes report.html into the folder of a run that has committed a step. Writes
// nothing if the files there still belong to an older run. A failure is only
// printed: it does not change the end of the run.
void leave_report(const std::string& run_directory,
                  const coordinator::RunStatus& status, const Say& say);

}  // namespace headroom::cli
