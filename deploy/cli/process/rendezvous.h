// Rendezvous: how the agents of one launcher job find rank 0's coordinator:
// through a small file in a folder that all of them can read.
//
//   rank 0      publish_address(folder, job, "10.0.0.5:41234")
//   the others  read_address(folder, job), repeated, with a time limit
//
// The file is named after the job. It is written under another name and
// renamed, so that a reader finds either the whole file or none. Job names are
// never reused (launcher_environment.h), so a file left by another job is never
// read.
//
// A private folder has mode 0700. Each process of the job holds a lock on it,
// which the kernel releases when the process ends. A folder with an address and
// without a lock belongs to a job that was killed; the next job removes the
// address and the folder. No other file is ever removed, and no folder that has
// another file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "deploy/cli/process/file_descriptor.h"
#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

struct RendezvousFolder {
  std::filesystem::path path;
  // A folder in the temporary directory for this user, removed at the end.
  bool is_private = false;
};

// The folder in which the job's processes meet: `flag` (--rendezvous) if given,
// else a private folder under `temporary_directory` if all processes are on one
// host. Otherwise throws Error (exit 2) with the remedy. Pure.
RendezvousFolder rendezvous_folder(
    const LauncherPlace& place, const std::string& flag,
    const std::filesystem::path& temporary_directory, unsigned user_id);

// Makes the folder if it does not exist, and holds its lock while the result
// lives. A private folder has mode 0700 and belongs to `user_id`; throws Error
// if something else is at its path (a symbolic link, a folder of another user,
// open to others, or with other files). First removes private folders beside it
// that belong to no living job. Returns null for a folder that is not private.
[[nodiscard]] std::unique_ptr<FileDescriptor> prepare_folder(
    const RendezvousFolder& folder, unsigned user_id);

// The data that rank 0 publishes, in a file that only its user may read.
struct MeetingPoint {
  std::string address;  // HOST:PORT
  std::string token;    // rank 0's token; "" if there is none
};

void publish_address(const RendezvousFolder& folder, const std::string& job_id,
                     const MeetingPoint& meeting);

// Returns nullopt until the file exists. Throws Error if its content is
// invalid.
std::optional<MeetingPoint> read_address(const RendezvousFolder& folder,
                                         const std::string& job_id);

// Removes the job's file, and the folder if it is private. Never throws: the
// end of a run must not fail because of it.
void withdraw_address(const RendezvousFolder& folder,
                      const std::string& job_id) noexcept;

}  // namespace headroom::cli
