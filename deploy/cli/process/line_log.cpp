#include "deploy/cli/process/line_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "deploy/cli/process/child_output.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// More than anybody starts on one machine for one run.
constexpr int kMostProcesses = 256;

std::string utc_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = milliseconds / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%FT%T", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03dZ",
                static_cast<int>(milliseconds % 1000));
  return text;
}

std::string record_of(const std::string& process, const std::string& line) {
  const LogLine parts = split_log_line(line);
  nlohmann::ordered_json record;
  record["time"] = utc_time();
  record["process"] = valid_utf8(process);
  record["level"] = valid_utf8(parts.level);
  record["message"] = valid_utf8(parts.message);
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
}

void LineLog::add(const std::string& process, const std::string& line) {
  std::string record = record_of(process, line);
  std::lock_guard lock(mutex_);
  if (gave_up_) return;
  if (!out_.is_open() && !open()) {
    waiting_.push_back(std::move(record));
    if (waiting_.size() > limits_.waiting_lines) waiting_.pop_front();
    return;
  }
  write(record);
}

// The name is the first that no living process has.
bool LineLog::open() {
  std::error_code error;
  if (gave_up_ || !fs::is_directory(run_directory_, error)) return false;
  const fs::path folder = run_directory_ / "logs";
  fs::create_directory(folder, error);
  const std::string wanted = name_;
  for (int k = 1; k <= kMostProcesses && lock_ < 0; ++k) {
    name_ = k == 1 ? wanted : wanted + "-" + std::to_string(k);
    const fs::path path = folder / ("." + name_ + ".lock");
    const int descriptor =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor < 0) break;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      lock_ = descriptor;
    } else {
      ::close(descriptor);
    }
  }
  if (lock_ >= 0) out_.open(file(0), std::ios::app);
  gave_up_ = lock_ < 0 || !out_;
  if (gave_up_) return false;
  written_bytes_ = static_cast<int64_t>(fs::file_size(file(0), error));
  for (const std::string& record : std::exchange(waiting_, {})) write(record);
  return true;
}

void LineLog::write(const std::string& record) {
  const auto bytes = static_cast<int64_t>(record.size());
  if (written_bytes_ > 0 && written_bytes_ + bytes > limits_.file_bytes) {
    rotate();
  }
  out_ << record << std::flush;
  out_.clear();  // a full disk may have room again later
  written_bytes_ += bytes;
}

void LineLog::rotate() {
  out_.close();
  std::error_code ignored;
  fs::remove(file(limits_.files - 1), ignored);
  for (int age = limits_.files - 1; age > 0; --age) {
    fs::rename(file(age - 1), file(age), ignored);
  }
  out_.open(file(0), std::ios::trunc);
  written_bytes_ = 0;
}

fs::path LineLog::file(int age) const {
  return run_directory_ / "logs" /
         (name_ + (age == 0 ? "" : "." + std::to_string(age)) + ".jsonl");
}

namespace {

namespace fs = std::filesystem;

// A folder has its name from when it is locked: one that nobody holds is dead.
constexpr const char* kPrefix = "headroom-log-";
constexpr const char* kUnlockedPrefix = "headroom-new-";
// Between a folder's making and its lock.
constexpr time_t kYoungSeconds = 60;

int locked(const fs::path& folder) {
  const int descriptor =
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

bool is_ours_and_as_old(const fs::path& folder, time_t seconds) {
  struct stat about {};
  return ::lstat(folder.c_str(), &about) == 0 && about.st_uid == ::geteuid() &&
         std::time(nullptr) - about.st_mtime >= seconds;
}

void remove_if_left_behind(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const bool was_locked = name.starts_with(kPrefix);
  if (!was_locked && !name.starts_with(kUnlockedPrefix)) return;
  if (!is_ours_and_as_old(folder, was_locked ? 0 : kYoungSeconds)) return;
  const int lock = locked(folder);
  if (lock < 0) return;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  ::close(lock);
}

}  // namespace

LogFolder::LogFolder(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    remove_if_left_behind(entry.path());
  }
  std::string name =
      (parent / (std::string(kUnlockedPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error("launch",
                "no folder can be made in " + parent.string() + ": " +
                    std::strerror(errno),
                "free some space there, or set TMPDIR");
  }
  lock_ = locked(name);
  const std::string unique = name.substr(name.size() - 6);
  path_ = parent / (kPrefix + unique);
  if (::rename(name.c_str(), path_.c_str()) != 0) path_ = name;
}

LogFolder::~LogFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace headroom::cli
