// validate_in_tiles: `headroom val --tile`. Each image is cut into tiles, their
// boxes become those of the image as `headroom detect --tile` makes them
// (detect/detector.h), and these are held against all of the image's labels by
// the figures of validate.h.
//
// Rank i % ranks examines image i. No loss is computed of the heads, as no
// label belongs to a tile alone.
//
// Memory: a rank holds one decoded image, and one tile in the network.
// Collective; the same result on every rank, whatever their number.
// Errors: Error (exit 3) where the largest image, decoded, is beyond the limit.
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
  int64_t image_height = 640, image_width = 640;  // the network's input
  int64_t host_memory_limit_bytes = 0;            // 0: none
  codecs::ImageLimits limits = {};                // bands and range
};

ValidationResult validate_in_tiles(model::LayerGraph& model,
                                   const labels::Dataset& dataset,
                                   const TiledValidation& request,
                                   collectives::Communicator& world,
                                   const ValidationOptions& options);

}  // namespace headroom::validation
