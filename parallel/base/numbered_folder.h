// The folders that results go to: named as in YOLOv5 (exp, exp2, exp3, …), or
// whole or not there at all (NewFolder).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom {

// The exit code where a folder cannot be made: a full disk is a lack of a
// resource (5); any other reason, such as a file in the way or a folder of
// somebody else, makes the request wrong (2).
inline ExitCode exit_of_unmade_folder(const std::error_code& why) {
  return why == std::errc::no_space_on_device ? ExitCode::kResource
                                              : ExitCode::kRequest;
}

// Throws Error (exit 2) unless the folder of `file`, which `flag` named, is
// there. To be asked before any work is done for the file.
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

// The first of `base`, `base`2, `base`3, … that is not there. A dangling link
// counts as taken: nothing may be written through it.
std::filesystem::path free_folder_name(const std::filesystem::path& base);

// Makes that folder, so that it is nobody else's. Throws std::filesystem_error.
std::filesystem::path make_free_folder(const std::filesystem::path& base);

// Whether a run writes to its folder. Before that its supervisor may hold the
// empty folder for it.
bool is_begun_run_folder(const std::filesystem::path& folder);

// A folder that appears when all of it is there, or not at all. Files go into a
// hidden folder beside it, which takes its name at the end and is removed if
// that is never reached. write() may be called from any number of threads; the
// rest from one. Errors: Error, exit 2 if the folder is there and not empty,
// exit 5 if it cannot be written.

class NewFolder {
 public:
  // `tag` and `flag` are for messages: "tile", "--output".
  NewFolder(const std::filesystem::path& folder, std::string tag,
            const std::string& flag);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Paths are relative to the folder. A place is one until finish().
  std::filesystem::path place_of(const std::filesystem::path& file) const {
    return partial_ / file;
  }
  void make(const std::filesystem::path& sub_folder) const;
  void write(const std::filesystem::path& file, std::string_view bytes) const;
  void copy(const std::filesystem::path& from,
            const std::filesystem::path& file) const;
  void remove(const std::filesystem::path& file) const;

  // Gives the folder its name. REQUIRES: at most once, and nothing after it.
  void finish();

 private:
  [[noreturn]] void refuse_to_write(const std::filesystem::path& file,
                                    const std::string& why) const;

  std::filesystem::path folder_, partial_;
  std::string tag_;
};

}  // namespace headroom
