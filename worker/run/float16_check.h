// Float16Check: whether the devices of a run compute in float16.
//
// --precision auto tries float16 on cards that are known for NaN in it
// (RunConfig::checks_float16). Before such a run begins, each rank computes one
// forward and backward of the run's model in float32 and in float16, over two
// random images of at most 320 pixels with boxes. The loss is scaled as in the
// first step, and as in training the scale is halved while only the gradient is
// not finite. The check fails if float16 gives no finite gradient, or if its
// loss differs from float32's by more than 1 %, or its gradient's norm by more
// than 10 %.
//
// The check finds cards whose convolutions are wrong. It uses initial weights,
// so it does not find a model whose maps leave float16's range only with loaded
// or trained weights.
#pragma once

#include <string>

#include "parallel/collectives/communicator.h"
#include "worker/run/run_context.h"

namespace headroom::run {

struct Float16Check {
  std::string error;    // why float16 is not used; "" if the check passed
  std::string summary;  // the numbers that were compared
};

// Whether the run's check is still to be made. A resumed run keeps its
// precision.
bool is_float16_check_due(const RunContext& run);

// Checks the devices of all ranks. The error, if any, is that of the lowest
// rank that has one, on every rank. Frees all its memory. Collective.
Float16Check check_float16(const RunContext& run,
                           collectives::Communicator& world);

}  // namespace headroom::run
