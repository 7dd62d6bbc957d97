// stage_partition: where a pipeline is cut. Pure.
//
// Layers stay in order; every stage gets a run of them with at least one layer
// that has parameters. Among the cuts that keep each stage within its memory,
// the one whose slowest stage is fastest is taken, since a pipeline runs at the
// pace of its slowest stage; among equals the one with the fewest bytes between
// stages, then the one that cuts earliest.
//
// A stage's bytes: its layers' fixed bytes once; for every micro-batch in
// flight its layers' activations and the maps it receives; and what the fullest
// layer needs beyond that while it runs.
//
// Exact, by dynamic programming over (stage, first layer): num_stages x
// layers^2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom::planner {

// What one layer costs its stage.
struct PartitionLayer {
  double cost = 0;               // seconds, or any measure that adds up
  int64_t fixed_bytes = 0;       // parameters and all that has their size
  int64_t activation_bytes = 0;  // kept for backward, per micro-batch
  // While the layer runs, forward or backward, its activation_bytes included;
  // beside what the layers before it keep.
  int64_t busy_bytes = 0;
  int64_t map_bytes = 0;  // of its output, per micro-batch
  bool has_parameters = true;
  std::vector<int> inputs;  // layers it reads; -1 for the images
};

struct PartitionRequest {
  std::vector<PartitionLayer> layers;
  // in_flight[stage]: micro-batches that the stage holds at once. Its size is
  // the number of stages.
  std::vector<int64_t> in_flight;
  std::optional<int64_t> memory_limit_bytes;  // per stage
};

struct StagePartition {
  std::vector<int64_t> stage_begins;  // of each stage
  std::vector<double> stage_costs;
  std::vector<int64_t> stage_bytes;
};

struct PartitionDecision {
  std::optional<StagePartition> partition;
  std::string reason;  // which stage decides, or why there is none
};

// REQUIRES: costs and bytes are not negative; layers read earlier layers.
PartitionDecision partition_stages(const PartitionRequest& request);

// The least memory_limit_bytes under which there is a partition: what the
// fullest stage takes when the fullest stage is made as small as it can be.
// Nothing if too few layers have parameters.
std::optional<int64_t> smallest_memory_limit(const PartitionRequest& request);

}  // namespace headroom::planner
