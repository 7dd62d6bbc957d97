// StepContext: the environment of one forward of the network.
//
// Layers do not depend on ranks: everything that spans ranks is passed in here.
// In a single process there are only local groups and no exchange.
//
// The caller keeps all objects that the context points to until backward is
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
  // True: batch statistics (training); false: running statistics (evaluation).
  bool training = false;
  std::vector<BatchNormGroup> groups;      // empty in evaluation
  StatisticsExchange* exchange = nullptr;  // nullptr if every group is local
  HaloExchange* halo = nullptr;            // nullptr if images are not split
  LayerExecutor* runner = nullptr;         // nullptr: call layers directly
  ReplayLog* replay_log = nullptr;         // nullptr if the layer runs once
  DerivedMaps* derived = nullptr;          // nullptr: keep all saved maps
  // Running statistics are updated once per step, at its commit. Until then
  // forward adds each group's mean and unbiased variance (per channel) to
  // batch_norm_sums, a double tensor with one slice [2, C] per batch-norm layer
  // at offset LayerGraph::BatchNorm::sums_offset. Undefined if not wanted.
  at::Tensor batch_norm_sums;
  // True: on a device, a block adds the gradients of its parameters directly to
  // their .grad, in the kernel that computes them (batch norm) or converts them
  // from 16 bits (weight). This saves one kernel launch per gradient. REQUIRES:
  // the parameters have their .grad from forward to the end of backward.
  bool adds_gradients = false;
};

}  // namespace headroom::model
