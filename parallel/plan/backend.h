// Backend: how the ranks of a run exchange tensors.
#pragma once

#include <array>
#include <string>

#include "parallel/base/named_values.h"

namespace headroom::plan {

// The tensors of a device travel by NCCL, or through the host; those of the
// host by sockets, or MPI. kAuto is what a run may ask for; a plan has decided.
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
