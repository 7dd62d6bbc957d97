// What this machine's processor can do, where results, time or memory depend on
// it.
#pragma once

#include <string>

namespace headroom {

// Does oneDNN convolve bfloat16 here? It does with AVX-512 BW, VL and DQ,
// unless ONEDNN_MAX_CPU_ISA (its own variable) keeps it from them.
bool convolves_bfloat16();

// May oneDNN use AVX-512, by this value of ONEDNN_MAX_CPU_ISA? "" stands for a
// variable that is not set.
bool allows_avx512(const std::string& max_cpu_isa);

}  // namespace headroom
