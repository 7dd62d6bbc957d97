// Backend: how the ranks of a run exchange tensors.
#pragma once

#include <array>
#include <string>

#include "parallel/plan/named_values.h"

namespace headroom::plan {

// Device tensors use NCCL, or are copied through the host; host tensors use
// sockets, or MPI. A run may request kAuto; a plan always has one of the
// others.
enum class Backend { kAuto, kGloo, kNccl, kMpi };

// The values of --backend; plans and messages use the same names.
inline constexpr auto kBackends =
    std::to_array<NamedValue<Backend>>({{Backend::kAuto, "auto"},
                                        {Backend::kGloo, "gloo"},
                                        {Backend::kNccl, "nccl"},
                                        {Backend::kMpi, "mpi"}});

inline std::string to_string(Backend backend) {
  return name_in(kBackends, backend);
}

}  // namespace headroom::plan
