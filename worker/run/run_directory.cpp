#include "worker/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom::run {

namespace fs = std::filesystem;

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
  if (existed && !may_exist) {
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

void RunDirectory::clear() const {
  std::error_code error;
  fs::remove(root_ / "steps.jsonl", error);
  fs::remove(root_ / "results.csv", error);
  // A picture that is there is taken for this run's.
  for (const char* name : {"labels.jpg", "train_batch0.jpg", "train_batch1.jpg",
                           "train_batch2.jpg", "PR_curve.png"}) {
    fs::remove(root_ / name, error);
  }
  for (const fs::path& folder : {weights(), checkpoints()}) {
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
  }
}

void RunDirectory::write_text(const std::string& name,
                              const std::string& text) const {
  write_whole_file(root_ / name, text);
}

}  // namespace headroom::run
