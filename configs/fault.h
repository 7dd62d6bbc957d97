// Fault: something that a test lets go wrong, on the code path of the real
// thing.
//
//   oom@rank=1,step=7,allocation=40   the 40th allocation of that step's
//                                     attempt throws, as does the real
//                                     allocator
//   nan@rank=0,step=4                 that step's gradient is not finite
//
// Several are separated by ";". Each fires once: a retried step meets the next
// one in the list.
//
// Threads: a value. Errors: Error (exit 2) naming the part that is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

struct Fault {
  enum class Kind { kOutOfMemory, kNotANumber };
  Kind kind = Kind::kOutOfMemory;
  int rank = 0;
  int64_t step = 0;
  int64_t allocation = 1;  // counted from the attempt's first
  bool operator==(const Fault&) const = default;
};

std::vector<Fault> parse_faults(const std::string& text);

// As parse_faults reads it.
std::string to_string(const Fault& fault);

}  // namespace headroom
