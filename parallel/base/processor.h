// What this machine's processor can do, where results, time or memory depend on
// it.
#pragma once

#include <string>

namespace headroom {

// What oneDNN computes with, on which its scratch memory depends. It convolves
// bfloat16 only with AVX-512 BW, VL and DQ, and faster with AMX.
enum class OnednnIsa { kAvx2, kAvx512, kAmx };

// This processor's, unless ONEDNN_MAX_CPU_ISA (oneDNN's own variable) has less.
OnednnIsa onednn_isa();

// The most that this value of ONEDNN_MAX_CPU_ISA allows. "" stands for a
// variable that is not set.
OnednnIsa most_allowed_isa(const std::string& max_cpu_isa);

}  // namespace headroom
