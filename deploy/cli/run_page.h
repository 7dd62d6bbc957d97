// The page of a run that this process holds, and the report that stays of it.
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

// What a page of `listen` needs of --certs, --token-file and
// --insecure-network; on loopback nothing.
page::PageOptions page_options(const CommandLine& line,
                               const std::string& listen,
                               const std::string& flag);

// Throws Error (exit 2) where the flags of a run's page contradict each other.
void check_page_flags(const CommandLine& line);

using Say = std::function<void(const std::string& line)>;

// Serves the page as --page says, while the result lives, and says its address.
// Null with --page off, and where the address that nobody gave cannot be
// listened on, which is said. Throws Error (exit 2) for one that was given, and
// for any where --page-controls asks for the page's button.
std::unique_ptr<page::PageServer> serve_page(
    const CommandLine& line, const std::string& run_directory,
    std::function<std::optional<coordinator::RunStatus>()> status,
    const Say& say);

// Writes report.html into the folder of a run that has committed a step; none
// where the files there are still an older run's. Where that is not possible,
// it is said: the run has ended as it has.
void leave_report(const std::string& run_directory,
                  const coordinator::RunStatus& status, const Say& say);

}  // namespace headroom::cli
