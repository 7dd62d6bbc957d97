// Rendezvous: how the agents of one launcher job learn where rank 0's
// coordinator listens: a small file in a folder that all of them see.
//
//   rank 0      publish_address(folder, job, "10.0.0.5:41234")
//   the others  read_address(folder, job), again and again, with a time limit
//
// The file is named after the job, written under another name and renamed, so
// that a reader finds all of it or nothing. Job names never come again
// (launcher_environment.h), so a file left behind by another job is not read.
//
// A private folder holds a file that says that this program made it, and each
// process of the job holds the folder by a lock that the kernel releases with
// the process. One with that file that nobody holds is of a job that was
// killed, and the next job removes it. Everything else is left alone.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

struct RendezvousFolder {
  std::filesystem::path path;
  // It lies in the temporary directory, for this user, until the end.
  bool is_private = false;
};

// The folder in which the job meets: `flag` (--rendezvous) if given; without it
// a private one under `temporary_directory`, if all processes are on one host.
// Pure. Throws Error (exit 2) with the remedy otherwise.
RendezvousFolder rendezvous_folder(
    const LauncherPlace& place, const std::string& flag,
    const std::filesystem::path& temporary_directory, unsigned user_id);

// A lock on a folder, or on nothing.
class FolderHold {
 public:
  FolderHold() = default;
  explicit FolderHold(int descriptor) : descriptor_(descriptor) {}
  FolderHold(FolderHold&& other) noexcept;
  FolderHold& operator=(FolderHold&& other) noexcept;
  ~FolderHold();

  // flock's `operation`; true if it was done.
  bool lock(int operation) const;
  // REQUIRES: it holds a folder.
  struct stat status() const;
  // Whether the folder holds a regular file of that name.
  bool has_file(const char* name) const;
  // Whether it is that folder which lies at `path`.
  bool is_at(const std::filesystem::path& path) const;

 private:
  int descriptor_ = -1;
};

// Makes the folder unless it is there. A private one has mode 0700 and belongs
// to `user_id`; throws Error if something else lies at its path (a symbolic
// link, a folder of somebody else or open to others). Before that, private ones
// beside it that nobody holds are removed.
[[nodiscard]] FolderHold prepare_folder(const RendezvousFolder& folder,
                                        unsigned user_id);

// What rank 0 leaves for the others, in a file that its user alone may read.
struct MeetingPoint {
  std::string address;  // HOST:PORT
  std::string token;    // rank 0's token; "" where it drew none
};

void publish_address(const RendezvousFolder& folder, const std::string& job_id,
                     const MeetingPoint& meeting);

// Nothing as long as there is no address. Throws Error if the file is not one.
std::optional<MeetingPoint> read_address(const RendezvousFolder& folder,
                                         const std::string& job_id);

// Removes the job's file, and the folder if it is private. Never throws: the
// end of a run must not fail for it.
void withdraw_address(const RendezvousFolder& folder,
                      const std::string& job_id) noexcept;

}  // namespace headroom::cli
