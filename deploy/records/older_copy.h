// OlderCopy: a run's folder on this machine whose state is older than that on
// the machine which the folder's note names (parallel/base/folder_place.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "parallel/base/folder_place.h"

namespace headroom::records {

struct OlderCopy {
  FolderPlace newest;  // as the note says
  int64_t steps = 0;   // of the newest checkpoint here; 0 if there is none
};

// Returns nullopt if there is no note, or if the state here is as new as the
// noted one or newer: then the folder has been brought here, perhaps after the
// run went on elsewhere.
std::optional<OlderCopy> older_copy(const std::filesystem::path& run_directory);

}  // namespace headroom::records
