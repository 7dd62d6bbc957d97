// What --precision auto means for a run: bf16 where every card that computes
// has it in hardware, else fp32. It is settled once, when the run's first
// generation is formed, and the run keeps it: a resumed run computes as before
// on whichever cards.
#pragma once

#include <span>
#include <string>

#include "configs/run_config.h"

namespace headroom::coordinator {

struct PrecisionChoice {
  configs::Precision precision = configs::Precision::kFp32;
  std::string reason;  // "the cards compute in it"
};

// Chooses for a run whose precision is auto and whose device is settled.
// `capabilities`: of its cards, 9.0 as 90; 0 for one that is not known, none
// where there are no cards.
PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const int> capabilities);

// Settles it in `config`. Returns a line about the choice, which is empty on
// the CPU, or where it was settled already.
std::string settle_precision(configs::RunConfig& config,
                             std::span<const int> capabilities);

// "bf16"
std::string precision_text(const configs::RunConfig& config);

}  // namespace headroom::coordinator
