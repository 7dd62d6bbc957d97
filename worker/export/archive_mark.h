// headroom export writes a record of this name into its archives, and replaces
// only archives that contain it. PyTorch ignores it.
#pragma once

namespace headroom::exporter {

inline constexpr const char* kArchiveMark = "written_by_headroom_export";

}  // namespace headroom::exporter
