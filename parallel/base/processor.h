// What this machine's processor can do, where results, time or memory depend on
// it.
#pragma once

#include <string>

namespace headroom {

// Does oneDNN compute with AVX-512 BW, VL and DQ here? It convolves bfloat16
// only with them, and takes other scratch memory without. ONEDNN_MAX_CPU_ISA
// (its own variable) may keep it from them.
bool onednn_uses_avx512();

// May oneDNN use AVX-512, by this value of ONEDNN_MAX_CPU_ISA? "" stands for a
// variable that is not set.
bool allows_avx512(const std::string& max_cpu_isa);

}  // namespace headroom
