// Advice for NCCL errors whose message names a limit of the machine.
#pragma once

#include <string>

namespace headroom::cuda {

// Advice for a message of ncclGetLastError; "" if no known limit is named.
std::string nccl_advice(const std::string& message);

// Returns the reason why the loaded NCCL library cannot work in a program that
// was built with another version, or "" if it can. Versions are NCCL's numbers:
// 22809 for 2.28.9. A newer library works in a program built with an older one.
std::string nccl_version_refusal(int built_with, int loaded,
                                 const std::string& file);

}  // namespace headroom::cuda
