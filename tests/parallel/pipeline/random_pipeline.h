// Random layers, cuts and sizes of a pipeline, from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace headroom::pipeline {

struct RandomPipeline {
  PipelineSchedule kind = PipelineSchedule::k1F1B;
  int64_t num_micro_batches = 1;
  std::vector<std::vector<int>> inputs;
  std::vector<int64_t> stage_begins;

  int num_stages() const { return static_cast<int>(stage_begins.size()); }
};

// There are 1 to 5 stages, 1 to 7 micro-batches and up to 14 layers. Every
// layer but the first reads one to three earlier layers, so maps skip stages.
// The last layer reads all maps that no other layer reads, so every layer gets
// a gradient.
inline RandomPipeline random_pipeline(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int least, int most) {
    return least +
           static_cast<int>(random() % static_cast<uint32_t>(most - least + 1));
  };
  RandomPipeline pipeline;
  pipeline.kind =
      draw(0, 2) == 0 ? PipelineSchedule::kGPipe : PipelineSchedule::k1F1B;
  pipeline.num_micro_batches = draw(1, 7);
  const int num_stages = draw(1, 5);
  const int num_layers = num_stages + draw(1, 9);

  std::vector<bool> is_read(static_cast<size_t>(num_layers), false);
  for (int layer = 0; layer < num_layers; ++layer) {
    std::vector<int> inputs;
    if (layer == 0) {
      inputs = {-1};
    } else {
      for (int count = draw(1, 3); count > 0; --count)
        inputs.push_back(draw(std::max(0, layer - 6), layer - 1));
    }
    if (layer == num_layers - 1)
      for (int other = 0; other < layer; ++other)
        if (!is_read[static_cast<size_t>(other)]) inputs.push_back(other);
    for (const int input : inputs)
      if (input >= 0) is_read[static_cast<size_t>(input)] = true;
    pipeline.inputs.push_back(inputs);
  }
  std::set<int> cuts = {0};
  while (static_cast<int>(cuts.size()) < num_stages)
    cuts.insert(draw(1, num_layers - 1));
  pipeline.stage_begins.assign(cuts.begin(), cuts.end());
  return pipeline;
}

}  // namespace headroom::pipeline
