// StepContext: what one forward of the network is told by its surroundings.
//
// A layer never asks for its rank: whatever spans ranks is handed in here. The
// single-process version has local groups only and no exchange.
//
// Whoever runs the step keeps everything it points to alive until backward is
// done.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/base/layer_exchange.h"

namespace headroom {
class HaloExchange;  // parallel/base/layer_exchange.h
}

namespace headroom::model {

class DerivedMaps;    // worker/model/derived_maps.h
class LayerExecutor;  // worker/model/layer.h
class ReplayLog;      // worker/model/replay_log.h

struct StepContext {
  // Batch statistics (training) or running ones (evaluation).
  bool training = false;
  std::vector<BatchNormGroup> groups;      // empty in evaluation
  StatisticsExchange* exchange = nullptr;  // null: every group is local
  HaloExchange* halo = nullptr;            // null: the whole image is here
  LayerExecutor* runner = nullptr;         // null: layers are simply called
  ReplayLog* replay_log = nullptr;         // null: the layer runs once
  DerivedMaps* derived = nullptr;          // null: what is saved is kept
  // Running statistics move once a step, at its commit. Until then forward
  // adds each group's mean and unbiased variance (per channel) to
  // batch_norm_sums, a double tensor with one slice [2, C] per batch-norm
  // layer at offset LayerGraph::BatchNorm::sums_offset. Undefined: not wanted.
  at::Tensor batch_norm_sums;
  // Whether a block adds the gradients of its parameters to what these hold
  // already, on a device: a batch norm's in the kernel that makes them, the
  // weight's of 16 bits in one that widens them. Autograd's accumulation would
  // launch one kernel more for each. REQUIRES: from forward to the end of
  // backward the parameters hold their gradients.
  bool adds_gradients = false;
};

}  // namespace headroom::model
