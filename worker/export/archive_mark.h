// The name of the record that headroom export writes among the first records of
// an archive. A later export replaces only archives that contain this record.
// PyTorch ignores it.
#pragma once

namespace headroom::exporter {

inline constexpr const char* kArchiveMark = "written_by_headroom_export";

}  // namespace headroom::exporter
