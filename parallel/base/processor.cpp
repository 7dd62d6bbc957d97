#include "parallel/base/processor.h"

#include <cctype>
#include <cstdlib>

namespace headroom {

bool allows_avx512(const std::string& max_cpu_isa) {
  std::string name;
  for (const char c : max_cpu_isa) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  for (const char* below : {"SSE", "AVX2"}) {
    if (name.starts_with(below)) return false;
  }
  return name != "AVX";
}

bool onednn_uses_avx512() {
  static const bool does = [] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it later
    const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    return __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") &&
           allows_avx512(limit == nullptr ? "" : limit);
  }();
  return does;
}

}  // namespace headroom
