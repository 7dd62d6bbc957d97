// Where results go, named as in YOLOv5: exp, exp2, exp3, …
//
// Threads: functions of the file system, which others may change meanwhile.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom {

// What a folder that cannot be made says about a request.
//
// Threads: any.

// A full disk ends a run for want of a resource (5); any other reason is the
// name's, a file in the way or a folder of somebody else: the request is wrong
// (2).
inline ExitCode exit_of_unmade_folder(const std::error_code& why) {
  return why == std::errc::no_space_on_device ? ExitCode::kResource
                                              : ExitCode::kRequest;
}

// Before anything is read: throws Error (exit 2) unless `file` can be made
// where it is to lie. `flag`: what named it.
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

// Makes it, so that it is nobody else's. Throws std::filesystem_error.
std::filesystem::path make_free_folder(const std::filesystem::path& base);

// NewFolder: a folder that appears when all of it is there, or not at all.
//
// Files go into a hidden folder beside it, which takes its name at the end and
// is removed if that is never reached.
//
// Threads: write() from any number; the rest from one.
// Errors: Error, exit 2 if the folder is there and not empty, exit 5 if it
// cannot be written.

class NewFolder {
 public:
  // `tag` and `flag` are for messages: "tile", "--output".
  NewFolder(const std::filesystem::path& folder, std::string tag,
            const std::string& flag);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Paths are relative to the folder.
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
