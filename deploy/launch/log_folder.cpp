#include "deploy/launch/log_folder.h"

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

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "headroom-log-";
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

// Ours, old enough to have been locked, and locked by nobody.
void remove_if_left_behind(const fs::path& folder) {
  const int lock = locked(folder);
  if (lock < 0) return;
  struct stat about {};
  const bool is_left_behind =
      ::fstat(lock, &about) == 0 && about.st_uid == ::geteuid() &&
      std::time(nullptr) - about.st_mtime > kYoungSeconds;
  std::error_code ignored;
  if (is_left_behind) fs::remove_all(folder, ignored);
  ::close(lock);
}

}  // namespace

LogFolder::LogFolder(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (entry.path().filename().string().starts_with(kPrefix)) {
      remove_if_left_behind(entry.path());
    }
  }
  std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error("launch",
                "no folder can be made in " + parent.string() + ": " +
                    std::strerror(errno),
                "free some space there, or set TMPDIR");
  }
  path_ = name;
  lock_ = locked(path_);
}

LogFolder::~LogFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace headroom
