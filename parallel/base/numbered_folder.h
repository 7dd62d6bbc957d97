// Folders for results: numbered as in YOLOv5 (exp, exp2, exp3, …), or created
// complete or not at all (NewFolder).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom {

// The exit code if a folder cannot be created: 5 (lack of a resource) for a
// full disk; 2 (wrong request) for any other reason, such as a file of that
// name or missing permission.
inline ExitCode exit_of_unmade_folder(const std::error_code& why) {
  return why == std::errc::no_space_on_device ? ExitCode::kResource
                                              : ExitCode::kRequest;
}

// Throws Error (exit 2) unless the parent folder of `file`, which the user gave
// with `flag`, exists. Call it before the work whose result goes there.
inline void require_folder_of(const std::filesystem::path& file,
                              const std::string& tag, const std::string& flag) {
  std::filesystem::path folder = file.parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return;
  throw Error(
      tag,
      flag + " " + file.string() + ": there is no folder " + folder.string(),
      "make it, or name a file in a folder that is there");
}

// Returns the first of `base`, `base`2, `base`3, … that does not exist. A
// dangling symbolic link counts as existing: nothing may be written through it.
std::filesystem::path free_folder_name(const std::filesystem::path& base);

// Creates the folder that free_folder_name() returns; two processes never get
// the same folder. Throws std::filesystem_error.
std::filesystem::path make_free_folder(const std::filesystem::path& base);

// Returns true once a run has written to its folder. Before, the folder may be
// empty: the run's supervisor creates it to reserve the name.
bool is_begun_run_folder(const std::filesystem::path& folder);

// A folder that appears complete or not at all. Files are written to a hidden
// folder beside it, which is renamed by finish() and removed by the destructor
// otherwise. write() may be called from any number of threads, all other
// functions from one. Errors: Error, with exit 2 if the folder exists and is
// not empty, exit 5 if it cannot be written.

class NewFolder {
 public:
  // `tag` and `flag` are for messages: "tile", "--output".
  NewFolder(const std::filesystem::path& folder, std::string tag,
            const std::string& flag);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Paths are relative to the folder. place_of()'s result is valid until
  // finish().
  std::filesystem::path place_of(const std::filesystem::path& file) const {
    return partial_ / file;
  }
  void make(const std::filesystem::path& sub_folder) const;
  void write(const std::filesystem::path& file, std::string_view bytes) const;
  void copy(const std::filesystem::path& from,
            const std::filesystem::path& file) const;
  void remove(const std::filesystem::path& file) const;

  // Renames the folder into place. REQUIRES: called at most once, and last.
  void finish();

 private:
  [[noreturn]] void refuse_to_write(const std::filesystem::path& file,
                                    const std::string& why) const;

  std::filesystem::path folder_, partial_;
  std::string tag_;
};

}  // namespace headroom
