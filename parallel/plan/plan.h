// Plan: all that a worker needs to know about how a run is split.
//
// Plain data: a pure function of (model profile, cluster, request), printed,
// sent over gRPC, stored in the checkpoint, and applied from outside to a model
// that knows nothing of ranks.
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

// What a layer of the model keeps for its backward: everything; the outputs of
// its convolutions, from which the rest is derived; its inputs only (Chen et
// al., "Training Deep Nets with Sublinear Memory Cost", 2016); nothing in the
// device's memory. A policy changes no result, so every rank may have its own.
enum class ActivationPolicy { kKeep, kLean, kRecompute, kOffload };

// The most bytes of tensors that a rank is expected to need in each part of a
// run, and of host memory for the loader and for what goes to files.
struct PhaseBytes {
  int64_t start_up = 0;
  int64_t training = 0;
  int64_t validation = 0;
  int64_t checkpoint = 0;
  int64_t host = 0;

  // The most bytes of tensors at any time.
  int64_t peak() const {
    return std::max({start_up, training, validation, checkpoint});
  }
  bool operator==(const PhaseBytes&) const = default;
};

struct Plan {
  ParallelLayout layout;
  Backend backend = Backend::kGloo;
  // Samples of one rank that go through the network at once. A step's share
  // of a rank is cut into as many micro-batches as that takes.
  int64_t micro_batch_size = 0;
  // Consecutive samples of the global batch that share batch-norm statistics:
  // so many, or about so many in groups of even sizes.
  int64_t batch_norm_group_size = 0;
  bool even_batch_norm_groups = false;
  BatchNormRule batch_norm_rule() const {
    return {batch_norm_group_size, even_batch_norm_groups};
  }
  // What is split over the data axis (Rajbhandari et al., "ZeRO", 2020): 1 the
  // optimizer's state and the EMA, 2 gradients too, 3 parameters too; 0
  // nothing.
  int zero_stage = 0;
  // The first layer of each pipeline stage; the first is 0.
  std::vector<int64_t> stage_begins = {0};
  // One per layer of the model; empty where every layer keeps.
  std::vector<ActivationPolicy> activation_policies;
  // Images of a validation batch that go through the network at once; 0: all
  // of them. The batches, and with them the results, are the same whatever it
  // is.
  int64_t validation_images = 0;
  // What each rank is expected to need at most, in bytes of tensors
  // (phase_memory.h): the largest of its phases. Empty where that is not known.
  std::vector<int64_t> predicted_peak_bytes;
  // The bytes of the same ranks in each phase.
  std::vector<PhaseBytes> predicted_phase_bytes;
  std::string reason;  // why this plan was chosen

  bool operator==(const Plan&) const = default;
};

// The names of policies, and of a plan's list of them.

// "keep", "lean", "recompute", "offload", and back; nothing for another word.
std::string to_string(ActivationPolicy policy);
std::optional<ActivationPolicy> parse_activation_policy(
    const std::string& name);

// The text of Plan::activation_policies: "lean"; "keep, layer 7 lean, layers 0
// to 3, 5 recompute" where layers differ, the commonest first.
std::string activations_text(const std::vector<ActivationPolicy>& policies);

// Whether a plan's layers can be captured as graphs of a device, forward and
// backward (worker/step/cuda_graph_runner.h). Nothing in them may wait for
// another rank or for the host, and the micro-batches of a step must have one
// size.

// The reason why they cannot be captured; nothing where they can.
std::optional<std::string> capture_error(const Plan& plan, const BatchCut& cut);

}  // namespace headroom::plan
