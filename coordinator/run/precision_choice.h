// Decides --precision auto: bf16 if every card has it in hardware; fp16 with a
// scaled loss if the others have compute capability 7.5; else fp32. Cards
// of 7.5 without 16-bit tensor cores are known for NaN in fp16: their workers
// check one step before the run begins, and RunState replaces fp16 by fp32 if
// it fails. Decided once, when the first generation is formed, and recorded: a
// resumed run keeps its precision on any cards.
#pragma once

#include <span>
#include <string>

#include "configs/run_config.h"
#include "proto/reports.h"

namespace headroom::coordinator {

struct PrecisionChoice {
  configs::Precision precision = configs::Precision::kFp32;
  std::string reason;           // text for messages: "the cards compute in it"
  bool checks_float16 = false;  // fp16, if the check of one step passes
};

// Chooses the precision for a run with --precision auto whose device is
// decided. `cards`: those that compute; empty without cards.
PrecisionChoice choose_precision(const configs::RunConfig& config,
                                 std::span<const wire::NodeCard> cards);

// Decides the precision in `config`. Returns a line for the log; "" on the CPU,
// or if the precision was decided already.
std::string settle_precision(configs::RunConfig& config,
                             std::span<const wire::NodeCard> cards);

// The line for the log about a precision that was chosen for cards.
std::string precision_line(const configs::RunConfig& config,
                           const std::string& reason);

// The precision's name: "bf16".
std::string precision_text(const configs::RunConfig& config);

}  // namespace headroom::coordinator
