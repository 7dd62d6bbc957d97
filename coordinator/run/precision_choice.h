// Decides --precision auto: bf16 if every card supports it in hardware, else
// fp32. The precision is decided once, when the first generation is formed, and
// is recorded: a resumed run keeps its precision on any cards.
#pragma once

#include <span>
#include <string>

#include "configs/run_config.h"

namespace headroom::coordinator {

struct PrecisionChoice {
  configs::Precision precision = configs::Precision::kFp32;
  std::string reason;  // text for messages: "the cards compute in it"
};

// Chooses the precision for a run with --precision auto whose device is
// decided. `capabilities`: the compute capability of each card, 90 for 9.0, 0
// if unknown; empty without cards.
PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const int> capabilities);

// Decides the precision in `config`. Returns a line for the log; "" on the CPU,
// or if the precision was decided already.
std::string settle_precision(configs::RunConfig& config,
                             std::span<const int> capabilities);

// The precision's name: "bf16".
std::string precision_text(const configs::RunConfig& config);

}  // namespace headroom::coordinator
