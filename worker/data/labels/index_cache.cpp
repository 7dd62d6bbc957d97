#include "worker/data/labels/index_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/environment.h"
#include "parallel/base/regular_file.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

fs::path lock_of(const fs::path& index) { return index.string() + ".lock"; }

bool is_index_before(const fs::path& file, time_t time) {
  const std::string name = file.filename().string();
  struct stat status {};
  return name.size() == StreamDigest().hex().size() &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos &&
         ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid() && status.st_mtime < time;
}

// Checks again under the lock, so that no index is removed while another
// process writes it.
void remove_index_before(const fs::path& file, time_t time) {
  const IndexLock held(file);
  if (!held.is_held() || !is_index_before(file, time)) return;
  std::error_code ignored;  // a file that cannot be removed stays
  fs::remove(file.string() + ".partial", ignored);
  fs::remove(file, ignored);
  fs::remove(lock_of(file), ignored);
}

}  // namespace

void remove_unused_beside(const fs::path& used, std::chrono::hours unused) {
  ::utimensat(AT_FDCWD, used.c_str(), nullptr, 0);
  const time_t begin =
      std::time(nullptr) - std::chrono::seconds(unused).count();
  std::error_code error;
  for (const fs::path& file : entries_of(used.parent_path(), error)) {
    if (is_index_before(file, begin)) remove_index_before(file, begin);
  }
}

IndexLock::IndexLock(const fs::path& index) {
  const fs::path path = lock_of(index);
  // Another process may remove the file between open() and the check: try
  // again. The number of tries is limited, because on some file systems a file
  // never keeps its inode number.
  constexpr int kTries = 100;
  int tries = 0;
  do {
    if (++tries > kTries) {
      is_held_ = false;
      error_ = ESTALE;
      return;
    }
    if (file_ >= 0) ::close(file_);
    is_held_ = false;
    file_ =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file_ < 0) {
      error_ = errno;
    } else if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
      is_held_ = true;
    } else if (errno != EWOULDBLOCK) {
      error_ = errno;
    }
  } while (is_held_ && !is_at(file_, path));
}

IndexLock::~IndexLock() {
  if (file_ >= 0) ::close(file_);
}

fs::path index_folder() {
  const fs::path cache = user_cache_folder();
  return cache.empty() ? "" : cache / "folders";
}

}  // namespace headroom::labels
