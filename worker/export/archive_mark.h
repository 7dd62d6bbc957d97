// The record by which headroom export knows the archives that it has written.
// It stands among the first records; PyTorch does not look at it.
#pragma once

namespace headroom::exporter {

inline constexpr const char* kArchiveMark = "written_by_headroom_export";

}  // namespace headroom::exporter
