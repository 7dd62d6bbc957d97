#include "deploy/cli/process/rendezvous.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestAddress = 300;

std::filesystem::path file_of(const RendezvousFolder& folder,
                              const std::string& job_id) {
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

int opened(const std::filesystem::path& folder) {
  return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// The marker file: this program made the folder.
constexpr const char* kMarker = ".headroom-rendezvous";

// Removes the files that this program writes into such a folder, then the
// folder unless it contains something else. It is renamed before its marker is
// removed: no process finds a folder of this name without a marker.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  bool holds_more = false;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("headroom-") &&
        name.find(".address") != std::string::npos) {
      fs::remove(entry.path(), ignored);
    } else if (name != kMarker) {
      holds_more = true;
    }
  }
  if (holds_more) return;
  std::string nameless = folder.string() + ".XXXXXX";
  if (mkdtemp(nameless.data()) == nullptr) return;
  if (rename(folder.c_str(), nameless.c_str()) == 0) {
    fs::remove(fs::path(nameless) / kMarker, ignored);
  }
  fs::remove(nameless, ignored);
}

void remove_left_behind(const fs::path& parent, unsigned user_id) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    struct stat found {};
    if (!name.starts_with(private_prefix(user_id)) ||
        lstat(entry.path().c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != user_id) {
      continue;
    }
    const FolderHold hold(opened(entry.path()));
    if (hold.lock(LOCK_EX | LOCK_NB) && hold.has_file(kMarker) &&
        hold.is_at(entry.path())) {
      remove_folder(entry.path());
    }
  }
}

// The marker is written before the folder gets its final name, so that a folder
// of that name always has one.
void make_marked(const RendezvousFolder& folder) {
  std::string made = folder.path.string() + ".XXXXXX";
  if (mkdtemp(made.data()) == nullptr) {
    refuse_folder(folder, std::string("cannot be made: ") + strerror(errno));
  }
  std::ofstream marker(fs::path(made) / kMarker);
  marker << "Processes of one job meet here.\n" << std::flush;
  if (!marker) {
    remove_folder(made);
    refuse_folder(folder, "cannot be written to");
  }
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, folder.path.c_str(),
                RENAME_NOREPLACE) != 0) {
    remove_folder(made);  // another process of the job was faster
  }
}

// Throws unless the path is a private folder of this user.
void require_private(const RendezvousFolder& folder, const struct stat& found,
                     unsigned user_id) {
  if (!S_ISDIR(found.st_mode)) refuse_folder(folder, "is no folder");
  if (found.st_uid != user_id) {
    refuse_folder(folder, cat("belongs to user ", found.st_uid,
                              ", not to user ", user_id));
  }
  if ((found.st_mode & 077) != 0) {
    refuse_folder(folder, "is open to other users");
  }
}

}  // namespace

FolderHold::FolderHold(FolderHold&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderHold& FolderHold::operator=(FolderHold&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FolderHold::~FolderHold() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool FolderHold::lock(int operation) const {
  return descriptor_ >= 0 && flock(descriptor_, operation) == 0;
}

struct stat FolderHold::status() const {
  struct stat held {};
  HEADROOM_CHECK(fstat(descriptor_, &held) == 0, "a folder that is held");
  return held;
}

bool FolderHold::has_file(const char* name) const {
  struct stat found {};
  return fstatat(descriptor_, name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(found.st_mode);
}

bool FolderHold::is_at(const std::filesystem::path& path) const {
  struct stat held {
  }, found{};
  return fstat(descriptor_, &held) == 0 && lstat(path.c_str(), &found) == 0 &&
         held.st_ino == found.st_ino && held.st_dev == found.st_dev;
}

RendezvousFolder rendezvous_folder(
    const LauncherPlace& place, const std::string& flag,
    const std::filesystem::path& temporary_directory, unsigned user_id) {
  if (place.job_id.empty()) {
    throw Error("rendezvous",
                cat(place.launcher, " gives its job no name, so its ",
                    place.size, " processes cannot meet in a folder"),
                "give --coordinator HOST:PORT, an address of rank 0's host");
  }
  if (!flag.empty()) {
    return {.path = std::filesystem::absolute(flag), .is_private = false};
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

FolderHold prepare_folder(const RendezvousFolder& folder, unsigned user_id) {
  if (!folder.is_private) {
    std::error_code error;
    std::filesystem::create_directories(folder.path, error);
    if (!std::filesystem::is_directory(folder.path)) {
      refuse_folder(folder, "is no folder and cannot be made one");
    }
    return FolderHold();
  }
  remove_left_behind(folder.path.parent_path(), user_id);
  // Another job may have removed the folder before it was locked: try again.
  for (int tries = 0; tries < 100; ++tries) {
    struct stat found {};
    if (lstat(folder.path.c_str(), &found) != 0) make_marked(folder);
    if (lstat(folder.path.c_str(), &found) != 0) continue;  // removed just now
    require_private(folder, found, user_id);
    FolderHold hold(opened(folder.path));
    if (!hold.lock(LOCK_SH)) continue;
    // The name may belong to another folder by now.
    require_private(folder, hold.status(), user_id);
    // The order matters: a folder gets its marker before its name and loses it
    // after its name. So a folder that still has its name but no marker was not
    // made by this program.
    const bool is_ours = hold.has_file(kMarker);
    if (!hold.is_at(folder.path)) continue;
    if (!is_ours) refuse_folder(folder, "was not made by headroom");
    return hold;
  }
  refuse_folder(folder, "is removed again and again");
}

void publish_address(const RendezvousFolder& folder, const std::string& job_id,
                     const MeetingPoint& meeting) {
  const std::filesystem::path file = file_of(folder, job_id);
  const std::filesystem::path partial = cat(file.string(), ".", getpid());
  const std::string text = meeting.address + "\n" + meeting.token + "\n";
  std::filesystem::remove(partial);
  const int out =
      open(partial.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool is_written = out >= 0 && write(out, text.data(), text.size()) ==
                                          static_cast<ssize_t>(text.size());
  if (out >= 0) close(out);
  if (!is_written) refuse_folder(folder, "cannot be written to");
  std::filesystem::rename(partial, file);
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
  std::filesystem::remove(file_of(folder, job_id), ignored);
  if (folder.is_private) remove_folder(folder.path);
}

}  // namespace headroom::cli
