// Plan: how a run is split over ranks. It holds everything that a worker needs
// to take part.
//
// Plain data, computed by a pure function of (model profile, cluster, request).
// It is printed, sent over gRPC and stored in checkpoints. A plan is applied to
// the model from outside, so the model code does not depend on ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/backend.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"

namespace headroom::plan {

// Which tensors a layer keeps for its backward. kKeep: all that it needs.
// kLean: the outputs of its convolutions, from which the others are derived.
// kRecompute: only its inputs (Chen et al., "Training Deep Nets with Sublinear
// Memory Cost", 2016). kOffload: no tensors in device memory. From kKeep to
// kRecompute, memory decreases and computation increases. Policies do not
// change results, so ranks may use different policies.
enum class ActivationPolicy { kKeep, kLean, kRecompute, kOffload };

// Predicted largest number of bytes that a rank needs in each phase of a run.
// `host` is the host memory of the loader and of data for files; the other
// members count tensors.
struct PhaseBytes {
  int64_t start_up = 0;
  int64_t training = 0;
  int64_t validation = 0;
  int64_t checkpoint = 0;
  int64_t host = 0;

  // The largest number of bytes of tensors at any time.
  int64_t peak() const {
    return std::max({start_up, training, validation, checkpoint});
  }
  bool operator==(const PhaseBytes&) const = default;
};

struct Plan {
  ParallelLayout layout;
  Backend backend = Backend::kGloo;
  // Samples of one rank that run through the network at once; a rank's share of
  // a step is divided into micro-batches of this size. A larger value uses the
  // device better and needs more memory.
  int64_t micro_batch_size = 0;
  // Consecutive samples of the global batch that share batch-norm statistics:
  // exactly this many, or about this many if groups have nearly equal sizes.
  int64_t batch_norm_group_size = 0;
  bool even_batch_norm_groups = false;
  BatchNormRule batch_norm_rule() const {
    return {batch_norm_group_size, even_batch_norm_groups};
  }
  // ZeRO stage (Rajbhandari et al., 2020): which data is sharded over the data
  // axis. 0: none; 1: optimizer state and EMA; 2: also gradients; 3: also
  // parameters. A higher stage needs less memory and more communication.
  int zero_stage = 0;
  // The first layer of each pipeline stage; the first stage begins at layer 0.
  std::vector<int64_t> stage_begins = {0};
  // One policy per layer of the model; empty if every layer has kKeep.
  std::vector<ActivationPolicy> activation_policies;
  // Images of a validation batch that run through the network at once; 0: all
  // of them. The value changes neither the batches nor the results, only memory
  // and time.
  int64_t validation_images = 0;
  // Predicted largest number of bytes of tensors on each rank, over all its
  // phases (phase_memory.h). Empty if unknown.
  std::vector<int64_t> predicted_peak_bytes;
  // The prediction for each rank by phase; empty if unknown.
  std::vector<PhaseBytes> predicted_phase_bytes;
  std::string reason;  // why this plan was chosen

  bool operator==(const Plan&) const = default;
};

// The name of a policy: "keep", "lean", "recompute" or "offload".
// parse_activation_policy() returns no value for another name.
std::string to_string(ActivationPolicy policy);
std::optional<ActivationPolicy> parse_activation_policy(
    const std::string& name);

// Plan::activation_policies as text: "lean"; if layers differ, the most common
// one first: "keep, layer 7 lean, layers 0 to 3, 5 recompute".
std::string activations_text(const std::vector<ActivationPolicy>& policies);

// Why the plan's forward and backward cannot be captured as CUDA graphs
// (worker/step/cuda_graph_runner.h); no value if they can. In a graph no
// operation may wait for another rank or for the host, and all micro-batches of
// a step must have the same size.
std::optional<std::string> capture_error(const Plan& plan, const BatchCut& cut);

}  // namespace headroom::plan
