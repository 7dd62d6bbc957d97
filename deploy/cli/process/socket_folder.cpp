#include "deploy/cli/process/socket_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "proto/channel_security.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "headroom-sockets-";
// The path of a socket has at most 107 characters, including the socket's name
// in the folder.
constexpr size_t kLongestFolder = 64;

fs::path parent_folder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  const bool is_usable =
      !error &&
      temporary.string().size() + std::strlen(kPrefix) + 7 <= kLongestFolder;
  return is_usable ? temporary : fs::path("/tmp");
}

// Locks the folder and returns its descriptor. Returns -1 if another process
// holds the lock, or if it is not this user's folder.
int hold(const fs::path& folder) {
  const int handle =
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat about {};
  if (handle >= 0 && ::fstat(handle, &about) == 0 &&
      about.st_uid == ::geteuid() && ::flock(handle, LOCK_EX | LOCK_NB) == 0) {
    return handle;
  }
  if (handle >= 0) ::close(handle);
  return -1;
}

void remove_left_behind(const fs::path& parent) {
  std::error_code ignored;
  for (const fs::path& entry : entries_of(parent, ignored)) {
    if (!entry.filename().string().starts_with(kPrefix)) continue;
    const int handle = hold(entry);
    if (handle < 0) continue;
    // Keep an empty folder: another run may be about to lock it.
    if (!fs::is_empty(entry, ignored)) {
      fs::remove_all(entry, ignored);
    }
    ::close(handle);
  }
}

}  // namespace

SocketFolder::SocketFolder() {
  const fs::path parent = parent_folder();
  remove_left_behind(parent);
  std::string folder = (parent / kPrefix).string() + "XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    throw Error("coordinator",
                "no folder for this run's sockets can be made in " +
                    parent.string() + ": " + std::strerror(errno),
                "name a folder with TMPDIR that this user may write to");
  }
  path_ = folder;
  // Another program that looks for folders left behind may hold the lock for a
  // moment. Without the lock a later program would remove this folder.
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0) lock_soon(lock_);
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

std::string SocketFolder::control_address() const {
  return wire::kUnixPrefix + (path_ / "control").string();
}

}  // namespace headroom::cli
