#include "worker/step/stage_layers.h"

#include <utility>

namespace headroom::step {

std::vector<at::Tensor> run_stage_layers(model::LayerGraph& model,
                                         const pipeline::StageRoutes& routes,
                                         std::vector<at::Tensor> received,
                                         const at::Tensor& images,
                                         const model::StepContext& context) {
  model::LayerGraph::LayerMaps maps;
  for (size_t i = 0; i < received.size(); ++i) {
    maps[routes.received[i].layer] = std::move(received[i]);
  }
  std::vector<int> wanted;
  for (const pipeline::SentMap& map : routes.sent) wanted.push_back(map.layer);
  return model.forward_layers(std::move(maps), images, context, wanted);
}

std::vector<int64_t> stage_map_sizes(const model::LayerGraph& model, int layer,
                                     int64_t samples,
                                     const at::Tensor& pixels) {
  const layers::MapShape& shape =
      model.map_shapes()[static_cast<size_t>(layer)];
  return {samples, shape.channels, pixels.size(1) / shape.stride,
          pixels.size(2) / shape.stride};
}

}  // namespace headroom::step
