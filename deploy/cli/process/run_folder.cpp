#include "deploy/cli/process/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "deploy/records/run_lines.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::cli {

namespace {

namespace fs = std::filesystem;

Error unmade(const fs::path& folder, const std::error_code& why) {
  return Error("run",
               "cannot make the run directory " + folder.string() + " (" +
                   why.message() + ")",
               "choose a writable one with --project DIR");
}

// Removes a log that a killed run left. Throws if another run still writes to
// it, or if the file is not a coordinator's log.
void remove_stale_log(const fs::path& file) {
  const fs::path lock_file = file.string() + run_files::kLogLockSuffix;
  const int lock = open_locked(lock_file, O_CREAT | O_NOFOLLOW);
  if (lock < 0 && errno == EWOULDBLOCK) {
    throw Error("run",
                file.parent_path().string() +
                    " is being written by another "
                    "run",
                "wait for its end, stop it, or choose another --name");
  }
  if (lock < 0) {
    throw unmade(file.parent_path(),
                 std::error_code(errno, std::generic_category()));
  }
  const std::string_view magic = run_files::kLogMagic;
  const RegularFile log(file, Links::kRefused);
  const bool is_log =
      log.is_open() ? log.size() == 0 || log.read(0, magic.size()) == magic
                    : errno == ENOENT;
  // The lock file has the number of the log's last record: clear this number
  // for the next log.
  std::error_code ignored;
  const bool is_removed = is_log && ::ftruncate(lock, 0) == 0;
  if (is_removed) fs::remove(file, ignored);
  ::close(lock);
  if (!is_log) {
    throw Error("run", file.string() + " is no log of a coordinator",
                "move it away, or choose another --name");
  }
}

}  // namespace

RunFolder::RunFolder(const fs::path& wanted, bool may_exist) : path_(wanted) {
  try {
    make_parents(wanted.parent_path());
    std::error_code error;
    bool is_made = false;
    do {
      if (!may_exist) path_ = free_folder_name(wanted);
      is_made = fs::create_directory(path_, error);
      if (error) throw unmade(path_, error);
    } while (!is_made && !may_exist);  // another run took the name first
    if (is_made) made_.push_back(path_);
    remove_stale_log(log_file());
  } catch (...) {
    remove_what_is_empty();
    throw;
  }
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  fs::remove(token_file(), ignored);
  remove_run_log(log_file());
  remove_what_is_empty();
}

void RunFolder::write_token(const std::string& token) const {
  std::error_code ignored;
  fs::remove(token_file(), ignored);  // left by a killed run
  const std::string line = token + "\n";
  const int file =
      ::open(token_file().c_str(),
             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool is_written =
      file >= 0 && ::write(file, line.data(), line.size()) ==
                       static_cast<ssize_t>(line.size());
  const std::error_code why(errno, std::generic_category());
  if (file >= 0) ::close(file);
  if (!is_written) throw unmade(path_, why);
}

void RunFolder::make_parents(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  make_parents(folder.parent_path());
  if (fs::create_directory(folder, error)) made_.push_back(folder);
  if (error) throw unmade(folder, error);
}

void RunFolder::remove_what_is_empty() const {
  std::error_code ignored;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) {
    fs::remove(*folder, ignored);  // removes only empty folders
  }
}

std::string saved_state(const fs::path& run_directory) {
  const std::vector<int64_t> checkpoints =
      records::checkpoints_in(run_directory);
  const auto last = records::last_step(run_directory);
  const int64_t committed = last ? last->step + 1 : 0;
  const int64_t saved = checkpoints.empty() ? 0 : checkpoints.back();
  if (committed == 0 && saved == 0) return "no step is written down here";
  if (saved >= committed) {
    return cat("the state after ", counted(saved, "step"), " is saved");
  }
  return cat("the state after ", counted(committed, "step"), " is not saved, ",
             saved == 0 ? "and there is no checkpoint"
                        : cat("the newest checkpoint is after ",
                              counted(saved, "step")));
}

std::string tell_elsewhere(const fs::path& run_directory,
                           const FolderPlace& place) {
  if (!is_elsewhere(run_directory, place)) return "";
  leave_note(run_directory, place);
  return where_it_is(run_directory, place) + ": " +
         how_to_reach_it(run_directory, place);
}

bool is_live(const fs::path& run_directory) {
  const fs::path lock_file =
      run_directory /
      (std::string(run_files::kCoordinatorLog) + run_files::kLogLockSuffix);
  const RegularFile lock(lock_file, Links::kRefused);
  return lock.is_open() && ::flock(lock.descriptor(), LOCK_SH | LOCK_NB) != 0;
}

void remove_run_log(const fs::path& log_file) noexcept {
  const int lock =
      open_locked(log_file.string() + run_files::kLogLockSuffix, O_NOFOLLOW);
  if (lock < 0 && errno == EWOULDBLOCK) return;
  std::error_code ignored;
  for (const char* suffix :
       {"", run_files::kNextLogSuffix, run_files::kLogLockSuffix}) {
    fs::remove(log_file.string() + suffix, ignored);
  }
  if (lock >= 0) ::close(lock);
}

}  // namespace headroom::cli
