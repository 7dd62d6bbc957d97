// What a folder that cannot be made says about a request.
//
// Threads: any.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom {

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

}  // namespace headroom
