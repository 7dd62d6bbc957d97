#include "worker/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "configs/run_files.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/run_files.h"
#include "parallel/base/units.h"
#include "worker/checkpoint/checkpoint_files.h"

namespace headroom::run {

namespace fs = std::filesystem;
using configs::kOlderRun;

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

void RunDirectory::lock() {
  lock_ = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  if (lock_ >= 0 && errno != EWOULDBLOCK) return;  // a disk without locks
  throw Error("run", root_.string() + " is being written by another run",
              "wait for its end, stop it, or choose another --name");
}

void RunDirectory::create(bool may_exist, int64_t needed_bytes) {
  std::error_code error;
  const bool existed = fs::exists(root_, error);
  if (!may_exist && is_begun_run_folder(root_)) {
    throw Error("run",
                "the run directory " + root_.string() +
                    " was made by another run in the meantime",
                "start again, or give --exist-ok");
  }
  fs::create_directories(root_, error);
  if (error) {
    throw Error("run",
                "cannot make the run directory " + root_.string() + " (" +
                    error.message() + ")",
                "choose a writable one with --project DIR");
  }
  lock();
  const auto space = fs::space(root_, error);
  if (!error && static_cast<int64_t>(space.available) < needed_bytes) {
    if (!existed) fs::remove(root_, error);
    throw Error("run",
                "the disk of " + root_.string() + " has " +
                    format_bytes(static_cast<int64_t>(space.available)) +
                    " free, but checkpoints and weights need " +
                    format_bytes(needed_bytes),
                "free some space, or choose another disk with --project DIR");
  }
  make_sub_folders();
}

void RunDirectory::make_sub_folders() const {
  std::error_code error;
  for (const fs::path& folder : {weights(), checkpoints()}) {
    fs::create_directories(folder, error);
    if (error) {
      throw Error(
          "run",
          "cannot make " + folder.string() + " (" + error.message() + ")",
          "choose a writable folder with --project DIR");
    }
  }
}

void RunDirectory::mark_older_run() const {
  std::error_code error;
  if (fs::exists(root_ / run_files::kRun, error) ||
      !checkpoint::step_folders(checkpoints()).empty()) {
    write_text(kOlderRun,
               "An older run, until the new one has committed a step.\n");
  }
}

bool RunDirectory::holds_older_run() const {
  std::error_code error;
  return fs::exists(root_ / kOlderRun, error);
}

void RunDirectory::keep_older_run() const {
  std::error_code error;
  fs::remove(root_ / kOlderRun, error);
}

void RunDirectory::remove_older_run() const {
  std::error_code error;
  // A picture that is there is taken for this run's.
  for (const char* name :
       {run_files::kSteps, run_files::kResults, run_files::kSummary,
        "labels.jpg", "train_batch0.jpg", "train_batch1.jpg",
        "train_batch2.jpg", "PR_curve.png"}) {
    fs::remove(root_ / name, error);
  }
  for (const auto& entry : fs::directory_iterator(weights(), error)) {
    if (configs::is_weights_of_run(entry.path().filename())) {
      fs::remove(entry.path(), error);
    }
  }
  for (const checkpoint::StepFolder& folder :
       checkpoint::step_folders(checkpoints())) {
    checkpoint::remove_step_folder(folder.path);
  }
}

void RunDirectory::write_text(const std::string& name,
                              const std::string& text) const {
  write_whole_file(root_ / name, text);
}

}  // namespace headroom::run
