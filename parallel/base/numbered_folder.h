// Where results go, named as in YOLOv5: exp, exp2, exp3, …
//
// Threads: functions of the file system, which others may change meanwhile.
#pragma once

#include <filesystem>

namespace headroom {

// The first of `base`, `base`2, `base`3, … that is not there. A dangling link
// counts as taken: nothing may be written through it.
std::filesystem::path free_folder_name(const std::filesystem::path& base);

// Makes it, so that it is nobody else's. Throws std::filesystem_error.
std::filesystem::path make_free_folder(const std::filesystem::path& base);

}  // namespace headroom
