// module_tree: the tensors of a pickled checkpoint under their state names.
//
// YOLOv5 and ultralytics pickle whole module objects: a module's state has
// _parameters, _buffers and _modules. Walking them gives PyTorch's state dict.
// A checkpoint's averaged weights ("ema") are taken before "model"; a bare
// state dict is taken as it is.
//
// Threads: pure. Errors: Error naming the source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/pytorch_file/pickle.h"

namespace headroom::pytorch_file {

struct CheckpointContent {
  struct Tensor {
    std::string name;
    const PickleValue* value = nullptr;  // a kTensor
  };
  std::vector<Tensor> tensors;  // in state-dict order, names distinct
  std::string part;             // "ema", "model", "" for a bare state dict
  std::string model;            // "yolov5n"; "" where the file does not say
  std::vector<std::string> class_names;
  int64_t epoch = -1;
};

// `pickle` must outlive what is returned.
CheckpointContent read_checkpoint(const Pickle& pickle,
                                  const std::string& source);

}  // namespace headroom::pytorch_file
