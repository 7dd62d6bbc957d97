// Recognises a network without anchors by the names and shapes of its tensors:
// its family, its size and its number of classes. What a file says of itself is
// not used, because state dicts say nothing, and users name files as they like.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"

namespace headroom::weights {

using TensorShapes = std::map<std::string, std::vector<int64_t>>;

struct RecognisedNetwork {
  // "YOLO11 (detection)": for users, without the size.
  std::string description;
  // The model, if it can be trained here. Its name is that of the shipped
  // model, or the family's with "-own" if it has a size of its own.
  std::optional<layers::ModelTable> table = {};
};

// Returns nullopt for other networks, among them YOLOv5's detectors.
std::optional<RecognisedNetwork> recognise_network(const TensorShapes& shapes);

}  // namespace headroom::weights
