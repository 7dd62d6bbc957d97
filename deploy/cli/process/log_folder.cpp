#include "deploy/cli/process/log_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom::cli {
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
