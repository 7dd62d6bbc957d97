// What helps where NCCL's own message names a limit of the machine.
#pragma once

#include <string>

namespace headroom::cuda {

// "" where it names none that is known. `message`: what ncclGetLastError says.
std::string nccl_advice(const std::string& message);

// Why the NCCL library that was loaded cannot serve a program that was built
// with another version, and what helps; "" where it can. Versions as NCCL
// writes them: 22809 for 2.28.9. A newer one takes what an older program asks.
std::string nccl_version_refusal(int built_with, int loaded,
                                 const std::string& file);

}  // namespace headroom::cuda
