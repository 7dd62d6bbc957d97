#include "parallel/machine/processor.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace headroom {

OnednnIsa most_allowed_isa(const std::string& max_cpu_isa) {
  std::string name;
  for (const char c : max_cpu_isa) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (name == "AVX" || name.starts_with("SSE") || name.starts_with("AVX2")) {
    return OnednnIsa::kAvx2;
  }
  const bool names_one = name.starts_with("AVX");
  return !names_one || name.find("AMX") != std::string::npos
             ? OnednnIsa::kAmx
             : OnednnIsa::kAvx512;
}

OnednnIsa onednn_isa() {
  static const OnednnIsa isa = [] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no thread sets the variable later
    const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    OnednnIsa has = OnednnIsa::kAvx2;
    if (__builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      has = __builtin_cpu_supports("amx-bf16") ? OnednnIsa::kAmx
                                               : OnednnIsa::kAvx512;
    }
    return std::min(has, most_allowed_isa(limit == nullptr ? "" : limit));
  }();
  return isa;
}

}  // namespace headroom
