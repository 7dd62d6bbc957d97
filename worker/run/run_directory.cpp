#include "worker/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "configs/replaced_files.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/pictures/batch_pictures.h"
#include "worker/weights/weights_file.h"

namespace headroom::run {

namespace fs = std::filesystem;

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

void RunDirectory::lock(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  lock_ = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (lock_ >= 0) {
    if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) return;  // the file system has no locks
    if (std::chrono::steady_clock::now() >= end) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw Error("run", root_.string() + " is being written by another run",
              "wait for its end, stop it, or choose another --name");
}

void RunDirectory::create(bool may_exist, int64_t needed_bytes,
                          std::chrono::milliseconds patience) {
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
  lock(patience);
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
    write_text(run_files::kOlderRun,
               "An older run, until the new one has committed a step.\n");
  }
}

bool RunDirectory::holds_older_run() const {
  std::error_code error;
  return fs::exists(root_ / run_files::kOlderRun, error);
}

void RunDirectory::keep_older_run() const {
  std::error_code error;
  fs::remove(root_ / run_files::kOlderRun, error);
}

namespace {

// Files that a new run would continue or overwrite. kFileRecord lists the files
// that the run in this folder has written.
std::vector<std::string> replaced_files() {
  std::vector<std::string> names = {
      run_files::kSteps,  run_files::kResults, run_files::kSummary,
      run_files::kReport, run_files::kMlflow,  run_files::kLabelsPicture};
  for (int64_t batch = 0; batch < pictures::kPicturedBatches; ++batch) {
    names.push_back(run_files::train_batch_picture(batch));
  }
  names.emplace_back(run_files::kCurvePicture);
  return names;
}

// Renames a user's file whose name the run needs; returns the new name.
fs::path set_aside(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error))) return "";
  fs::path other = file.string() + ".before";
  for (int number = 2; fs::exists(fs::symlink_status(other, error)); ++number) {
    other = cat(file.string(), ".before", number);
  }
  fs::rename(file, other, error);
  return other;
}

}  // namespace

fs::path RunDirectory::set_aside_other_run(const std::string& run_id) const {
  if (!belongs_to_other_run(root_, run_id)) return "";
  fs::path moved = set_aside(root_);
  // Another worker may have renamed it first; else the runs would mix.
  if (belongs_to_other_run(root_, run_id)) {
    throw Error("run",
                root_.string() + " is of another run and cannot be renamed",
                "rename it", ExitCode::kResource);
  }
  return moved;
}

void RunDirectory::record_files() const {
  std::string names;
  for (const std::string& name : replaced_files()) names += name + "\n";
  write_text(run_files::kFileRecord, names);
}

void RunDirectory::remove_older_run() const {
  std::error_code error;
  std::set<std::string> recorded;
  std::istringstream record(text_or_none(root_ / run_files::kFileRecord));
  for (std::string name; std::getline(record, name);) recorded.insert(name);
  for (const std::string& name : replaced_files()) {
    if (recorded.contains(name)) {
      fs::remove(root_ / name, error);
    } else {
      set_aside(root_ / name);
    }
  }
  for (const fs::path& entry : entries_of(weights(), error)) {
    const std::string name = entry.filename();
    if (!configs::is_weights_of_run(name)) continue;
    if (weights::are_weights_of_ours(entry)) {
      fs::remove(entry, error);
      // The file is not from the older run, and this run may need its name.
    } else if (!name.starts_with(run_files::kEpochPrefix)) {
      set_aside(entry);
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
