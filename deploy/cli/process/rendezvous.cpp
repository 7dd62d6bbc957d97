#include "deploy/cli/process/rendezvous.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestAddress = 300;

fs::path file_of(const RendezvousFolder& folder, const std::string& job_id) {
  return folder.path / ("headroom-" + job_id + ".address");
}

[[noreturn]] void refuse_folder(const RendezvousFolder& folder,
                                const std::string& why) {
  throw Error("rendezvous", folder.path.string() + " " + why,
              folder.is_private ? "remove it, or give --rendezvous DIR"
                                : "give another --rendezvous DIR");
}

std::string private_prefix(unsigned user_id) {
  return cat("headroom-", user_id, "-");
}

// "headroom-JOB.address", also while it is being written.
bool is_address_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("headroom-") &&
         name.find(".address") != std::string::npos;
}

// Returns the locked folder; null if it does not exist, its lock is not free,
// or another process removed or replaced it before it was locked.
std::unique_ptr<FileDescriptor> locked(const fs::path& folder, int operation) {
  const int opened =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return nullptr;
  auto hold = std::make_unique<FileDescriptor>(opened);
  if (flock(opened, operation) != 0 || !is_at(opened, folder)) return nullptr;
  return hold;
}

// Removes the folders of jobs that were killed. A folder without an address may
// belong to a job that is just starting.
void remove_left_behind(const fs::path& parent, unsigned user_id) {
  std::error_code ignored;
  for (const fs::path& folder : entries_of(parent, ignored)) {
    const std::string name = folder.filename().string();
    const std::string prefix = private_prefix(user_id);
    struct stat found {};
    if (!name.starts_with(prefix) || lstat(folder.c_str(), &found) != 0 ||
        !S_ISDIR(found.st_mode) || found.st_uid != user_id) {
      continue;
    }
    const RendezvousFolder left{folder, true};
    const std::string job_id = name.substr(prefix.size());
    const auto hold = locked(folder, LOCK_EX | LOCK_NB);
    if (hold && fs::exists(file_of(left, job_id), ignored)) {
      withdraw_address(left, job_id);
    }
  }
}

// Throws unless this is a private folder of this user without other files.
void require_private(const RendezvousFolder& folder, unsigned user_id) {
  struct stat found {};
  // Another process has just removed the folder.
  if (lstat(folder.path.c_str(), &found) != 0) return;
  if (!S_ISDIR(found.st_mode)) refuse_folder(folder, "is no folder");
  if (found.st_uid != user_id) {
    refuse_folder(folder, cat("belongs to user ", found.st_uid,
                              ", not to user ", user_id));
  }
  if ((found.st_mode & 077) != 0) {
    refuse_folder(folder, "is open to other users");
  }
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder.path, ignored)) {
    if (!is_address_file(entry)) {
      refuse_folder(folder, "was not made by headroom");
    }
  }
}

}  // namespace

RendezvousFolder rendezvous_folder(const LauncherPlace& place,
                                   const std::string& flag,
                                   const fs::path& temporary_directory,
                                   unsigned user_id) {
  if (place.job_id.empty()) {
    throw Error("rendezvous",
                cat(place.launcher, " gives its job no name, so its ",
                    place.size, " processes cannot meet in a folder"),
                "give --coordinator HOST:PORT, an address of rank 0's host");
  }
  if (!flag.empty()) {
    return {.path = fs::absolute(flag), .is_private = false};
  }
  if (!place.one_host()) {
    throw Error("rendezvous",
                cat(place.local_size, " of ", place.size,
                    " processes are on this host and nothing says where the "
                    "others find the coordinator"),
                "give --rendezvous DIR, a folder that all hosts share, or "
                "--coordinator HOST:PORT");
  }
  return {
      .path = temporary_directory / (private_prefix(user_id) + place.job_id),
      .is_private = true};
}

std::unique_ptr<FileDescriptor> prepare_folder(const RendezvousFolder& folder,
                                               unsigned user_id) {
  if (!folder.is_private) {
    std::error_code error;
    fs::create_directories(folder.path, error);
    if (!fs::is_directory(folder.path)) {
      refuse_folder(folder, "is no folder and cannot be made one");
    }
    return nullptr;
  }
  remove_left_behind(folder.path.parent_path(), user_id);
  // Another process may have removed the folder before it was locked: try
  // again.
  for (int tries = 0; tries < 100; ++tries) {
    if (mkdir(folder.path.c_str(), 0700) != 0 && errno != EEXIST) {
      refuse_folder(folder, std::string("cannot be made: ") + strerror(errno));
    }
    // Check before locking, so that this process never waits for the lock of
    // another user's folder.
    require_private(folder, user_id);
    auto hold = locked(folder.path, LOCK_SH);
    if (!hold) continue;
    require_private(folder, user_id);
    return hold;
  }
  refuse_folder(folder, "is removed again and again");
}

void publish_address(const RendezvousFolder& folder, const std::string& job_id,
                     const MeetingPoint& meeting) {
  const fs::path file = file_of(folder, job_id);
  const fs::path partial = cat(file.string(), ".", getpid());
  const std::string text = meeting.address + "\n" + meeting.token + "\n";
  std::error_code error;
  fs::remove(partial, error);
  const int out =
      open(partial.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool is_written = out >= 0 && write(out, text.data(), text.size()) ==
                                          static_cast<ssize_t>(text.size());
  if (out >= 0) close(out);
  if (is_written) fs::rename(partial, file, error);
  if (!is_written || error) refuse_folder(folder, "cannot be written to");
}

std::optional<MeetingPoint> read_address(const RendezvousFolder& folder,
                                         const std::string& job_id) {
  std::ifstream in(file_of(folder, job_id));
  if (!in) return std::nullopt;
  MeetingPoint meeting;
  std::getline(in, meeting.address);
  std::getline(in, meeting.token);
  const std::string& address = meeting.address;
  if (address.size() > kLongestAddress ||
      address.find(':') == std::string::npos) {
    refuse_folder(folder, "holds no address in " +
                              file_of(folder, job_id).filename().string());
  }
  return meeting;
}

void withdraw_address(const RendezvousFolder& folder,
                      const std::string& job_id) noexcept {
  std::error_code ignored;
  fs::remove(file_of(folder, job_id), ignored);
  // rmdir() fails for a folder that is not empty, so such a folder is not
  // removed.
  if (folder.is_private) rmdir(folder.path.c_str());
}

}  // namespace headroom::cli
