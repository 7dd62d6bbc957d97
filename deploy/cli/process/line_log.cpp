#include "deploy/cli/process/line_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "parallel/base/log.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// An upper bound on the number of processes that one run has on one machine.
constexpr int kMostProcesses = 256;
// open() follows no link, and does not wait for a reader of a pipe.
constexpr int kSafely = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

std::string record_of(const std::string& process, const ChildLine& line) {
  nlohmann::ordered_json record;
  record["time"] = utc_now();
  record["process"] = valid_utf8(process);
  record["level"] = line.record ? log::to_string(line.record->level) : "output";
  record["message"] =
      valid_utf8(line.record ? line.record->message : line.text);
  return record.dump() + '\n';
}

}  // namespace

LineLog::LineLog(fs::path run_directory, std::string name,
                 const LineLogLimits& limits)
    : run_directory_(std::move(run_directory)),
      name_(std::move(name)),
      limits_(limits) {}

LineLog::~LineLog() {
  std::lock_guard lock(mutex_);
  if (!waiting_.empty()) open();
  if (lock_ >= 0) ::close(lock_);
  if (out_ >= 0) ::close(out_);
}

void LineLog::add(const std::string& process, const ChildLine& line) {
  std::string record = record_of(process, line);
  std::lock_guard lock(mutex_);
  if (gave_up_) return;
  if (out_ < 0 && !open()) {
    waiting_.push_back(std::move(record));
    if (waiting_.size() > limits_.waiting_lines) waiting_.pop_front();
    return;
  }
  write(record);
}

// Takes the first name that no living process has locked.
bool LineLog::open() {
  std::error_code error;
  if (gave_up_ || !is_begun_run_folder(run_directory_)) return false;
  const fs::path folder = run_directory_ / run_files::kLogs;
  fs::create_directory(folder, error);
  gave_up_ = !fs::is_directory(fs::symlink_status(folder, error));
  if (gave_up_) return false;
  const std::string wanted = name_;
  for (int k = 1; k <= kMostProcesses && lock_ < 0; ++k) {
    name_ = k == 1 ? wanted : cat(wanted, "-", k);
    const fs::path path = folder / ("." + name_ + ".lock");
    const int descriptor =
        ::open(path.c_str(), O_RDWR | O_CREAT | kSafely, 0666);
    if (descriptor < 0) break;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      lock_ = descriptor;
    } else {
      ::close(descriptor);
    }
  }
  if (lock_ >= 0) open_file(O_APPEND);
  struct stat status {};
  gave_up_ = out_ < 0 || ::fstat(out_, &status) != 0;
  if (gave_up_) return false;
  written_bytes_ = status.st_size;
  for (const std::string& record : std::exchange(waiting_, {})) write(record);
  return true;
}

void LineLog::write(const std::string& record) {
  const auto bytes = static_cast<int64_t>(record.size());
  if (written_bytes_ > 0 && written_bytes_ + bytes > limits_.file_bytes) {
    rotate();
  }
  // A failed write loses this line only: the disk may have space for the next.
  (void)!::write(out_, record.data(), record.size());
  written_bytes_ += bytes;
}

void LineLog::rotate() {
  ::close(out_);
  std::error_code ignored;
  fs::remove(file(limits_.files - 1), ignored);
  for (int age = limits_.files - 1; age > 0; --age) {
    fs::rename(file(age - 1), file(age), ignored);
  }
  open_file(O_TRUNC);
  written_bytes_ = 0;
}

void LineLog::open_file(int flags) {
  out_ = ::open(file(0).c_str(), O_WRONLY | O_CREAT | kSafely | flags, 0666);
}

fs::path LineLog::file(int age) const {
  return run_directory_ / run_files::kLogs /
         (name_ + (age == 0 ? "" : cat(".", age)) + ".jsonl");
}

}  // namespace headroom::cli
