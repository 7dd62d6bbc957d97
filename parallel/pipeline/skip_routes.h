// The maps that are sent between the stages of a pipeline.
//
// Layers are numbered in order and read earlier layers or the images (-1). If
// later stages read a map, it is sent directly from the stage that computes it
// to each of them, once per stage, however many layers there read it and
// however many stages are between:
//
//   layers 0 1 2 | 3 4 | 5        stage 0 sends 2 to stages 1 and 2,
//        layer 3 reads 2          stage 1 sends 4 to stage 2
//        layer 5 reads 4 and 2
//
// A stage that reads the images gets them from its own loader.
//
// Invariants:
//   1. lists are in layer order, `to` in stage order, so that both stages of a
//      pair list the same maps in the same order;
//   2. every edge between stages is covered by exactly one (layer, from, to).
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::pipeline {

struct ReceivedMap {
  int layer = 0;
  int from = 0;  // sending stage
  bool operator==(const ReceivedMap&) const = default;
};

struct SentMap {
  int layer = 0;
  std::vector<int> to;  // receiving stages
  bool operator==(const SentMap&) const = default;
};

struct StageRoutes {
  std::vector<ReceivedMap> received;
  std::vector<SentMap> sent;
  bool reads_images = false;
  bool operator==(const StageRoutes&) const = default;
};

// Computes the routes of every stage. inputs[layer]: the layers that `layer`
// reads; -1 for the images. stage_begins[stage]: the stage's first layer;
// stage_begins[0] is 0, and the others increase.
std::vector<StageRoutes> skip_routes(
    const std::vector<std::vector<int>>& inputs,
    const std::vector<int64_t>& stage_begins);

// The stage that contains `layer`. REQUIRES: layer >= 0, stage_begins as above.
int stage_of_layer(const std::vector<int64_t>& stage_begins, int layer);

}  // namespace headroom::pipeline
