// Stamps of files, which detect that a file has changed without reading it.
// Used by the index of files (folder_index.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/data/packs/image_index.h"

namespace headroom::labels {

using packs::FileStamp;

// Returns nullopt if there is no such file. Asks the server of a network file
// system, not this machine's cache.
std::optional<FileStamp> stamp_of(const std::string& file);

// Whether a file system of this type (f_type of statfs(2)) sets the time of the
// last status change itself, so that programs cannot set it.
bool keeps_status_times(int64_t filesystem_type);

}  // namespace headroom::labels
