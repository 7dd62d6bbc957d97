#include "parallel/predict/captured.h"

#include <algorithm>
#include <vector>

namespace headroom::predict {
namespace {

// Beside the heads.
int64_t loss_bytes(const SimulatedStage& stage, const MicroBatchShape& extents,
                   const LossShape& loss) {
  const MicroBatchShape wide = extents.widened();
  MemoryTimeline timeline;
  Graph graph(timeline);
  const ModelLayer& detect = stage.layers.back();
  const int64_t channels =
      detect.channels / static_cast<int64_t>(detect.inputs.size());
  std::vector<Map> heads;
  for (const int input : detect.inputs) {
    const int64_t stride = stage.layers[static_cast<size_t>(input)].stride;
    Graph::Node replay;
    replay.backward = [](Gradient) { return Graph::Outcome(); };
    heads.push_back({timeline.allocate(wide.map_bytes(channels, stride)),
                     channels, stride, graph.add(std::move(replay))});
  }
  const int64_t of_heads = timeline.live_bytes();
  run_loss({extents, timeline, graph, stage.end - 1}, heads, loss);
  graph.run_backward([](int64_t) {}, nullptr);
  return timeline.peak_bytes() - of_heads;
}

// Also in float32, where that is not what the network takes.
int64_t input_bytes(const SimulatedStage& stage,
                    const MicroBatchShape& extents) {
  const int64_t images = extents.map_bytes(stage.image_channels, 1);
  return extents.element_bytes == kFloatBytes
             ? images
             : images + images / extents.element_bytes * kFloatBytes;
}

}  // namespace

int64_t captured_step_bytes(const SimulatedStage& stage,
                            const MicroBatchShape& extents,
                            const LossShape& loss) {
  MemoryTimeline timeline;
  MicroBatch(timeline, stage, extents, {}).capture();
  return timeline.peak_bytes() + std::max(loss_bytes(stage, extents, loss),
                                          input_bytes(stage, extents));
}

}  // namespace headroom::predict
