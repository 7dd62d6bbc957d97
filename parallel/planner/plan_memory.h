// PlanMemory: the memory that plans of one model need, rank by rank. It keeps
// every prediction, because a search predicts one plan under many limits, and
// many plans that differ only in a part of the run.
//
// A prediction takes about a millisecond and depends on all of its
// MemoryRequest, so predictions are looked up by the whole request.
//
// Not thread-safe. The layers must outlive the object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/card_speed.h"
#include "parallel/predict/memory_request.h"

namespace headroom::planner {

// Whether a plan's bytes stay within the memory limit. The state is a rank's
// memory outside its steps; it depends only on the layers, the layout and the
// ZeRO stage.
enum class MemoryFit { kFits, kStepTooLarge, kStateTooLarge };

class PlanMemory {
 public:
  explicit PlanMemory(const ModelOnCard& model) : model_(model) {}

  const std::vector<layers::LayerCost>& layers() const { return model_.layers; }
  const ModelOnCard& model() const { return model_; }

  // Completes a plan whose layout, batches and policies are chosen: sets how
  // many validation images fit at once, and each rank's predicted bytes.
  // REQUIRES: layers.
  void set_bytes(const configs::RunConfig& config, plan::Plan& plan);

  // Whether the bytes that set_bytes() would set stay within
  // config.memory_limit. Faster than set_bytes(). REQUIRES: as set_bytes().
  MemoryFit fit(const configs::RunConfig& config, const plan::Plan& plan);

  // Predicted peak bytes of tensors, one entry per rank. REQUIRES: a request
  // with this model's layers.
  std::vector<int64_t> peak_bytes(const predict::MemoryRequest& request);

  // Returns cut_stages() for a plan whose stages are not chosen yet.
  std::vector<int64_t> stage_begins(const configs::RunConfig& config,
                                    const plan::Plan& plan);

 private:
  using RankKind = std::array<int64_t, 5>;
  // What is predicted: the bytes of a phase of a run, or the cut of a pipeline
  // (kStages).
  enum class Part { kStartUp, kTraining, kValidation, kCheckpoint, kStages };
  struct Question {
    predict::MemoryRequest request;  // without its list of layers
    Part part = Part::kStartUp;
    RankKind rank = {};
    bool operator==(const Question&) const = default;
  };
  struct Hash {
    size_t operator()(const Question& question) const;
  };
  class Ranks;

  int64_t bytes(const Ranks& ranks, Part part, int rank);
  std::vector<plan::PhaseBytes> phase_bytes(const Ranks& ranks);

  const ModelOnCard model_;
  std::unordered_map<Question, int64_t, Hash> bytes_;
  std::unordered_map<Question, std::vector<int64_t>, Hash> stages_;
};

// PlanMemory::peak_bytes() of a single request.
std::vector<int64_t> predicted_peak_bytes(
    const predict::MemoryRequest& request);

// Why --host-memory-limit is too small for even the smallest loader; no value
// if the limit suffices or is not set.
std::optional<std::string> host_shortage(
    const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers, const plan::Plan& plan);

// Bytes of the rank that needs most. REQUIRES: a plan with predicted bytes.
int64_t fullest_rank_bytes(const plan::Plan& plan);
// The phase in which the fullest rank needs most: "in a step", "at the start",
// "in a validation", "for a checkpoint".
std::string fullest_phase(const plan::Plan& plan);
// The largest bytes of a rank outside validation, which a smaller validation
// batch cannot reduce.
int64_t fullest_rank_training_bytes(const plan::Plan& plan);

}  // namespace headroom::planner
