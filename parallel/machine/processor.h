// Properties of this machine's processor that affect results, time or memory.
#pragma once

#include <string>

namespace headroom {

// The instruction set that oneDNN uses; its scratch memory depends on it.
// bfloat16 convolutions need AVX-512 BW, VL and DQ, and are faster with AMX.
enum class OnednnIsa { kAvx2, kAvx512, kAmx };

// This processor's instruction set, or a lower one set by ONEDNN_MAX_CPU_ISA.
OnednnIsa onednn_isa();

// The highest instruction set that this value of ONEDNN_MAX_CPU_ISA allows. ""
// means that the variable is not set.
OnednnIsa most_allowed_isa(const std::string& max_cpu_isa);

}  // namespace headroom
