// validate_in_tiles: `headroom val --tile`. Each image is cut into tiles, and
// the boxes of the tiles are merged to boxes of the image as in `headroom
// detect --tile` (detect/detector.h). The merged boxes are compared with all
// labels of the image, by the metrics of validate.h.
//
// Image i is examined by rank i % ranks. No loss is computed, because a label
// does not belong to a single tile.
//
// Memory: a rank holds one decoded image, and one tile in the network.
// Collective; the figures are equal on every rank and for any number of ranks.
// Errors: Error (exit 3) if the largest decoded image exceeds the memory limit.
#pragma once

#include <cstdint>

#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"
#include "worker/detect/detector.h"
#include "worker/model/layer_graph.h"
#include "worker/validation/validate.h"

namespace headroom::collectives {
class Communicator;
}

namespace headroom::validation {

struct TiledValidation {
  detect::DetectionTiles tiles;
  int64_t image_height = 640, image_width = 640;  // the network's input size
  int64_t host_memory_limit_bytes = 0;            // 0 for no limit
  codecs::ImageLimits limits = {};  // bands and value range of images
};

ValidationResult validate_in_tiles(model::LayerGraph& model,
                                   const labels::Dataset& dataset,
                                   const TiledValidation& request,
                                   collectives::Communicator& world,
                                   const ValidationOptions& options);

}  // namespace headroom::validation
