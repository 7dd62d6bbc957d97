// state_dict: writes a state as torch.save(model.state_dict()) does, so that
// PyTorch loads it with torch.load(FILE, weights_only=True) and YOLOv5's model
// takes it with load_state_dict().
//
// A state dict has no metadata: neither its model nor its class names.
#pragma once

#include <filesystem>

#include "worker/model/layer.h"

namespace headroom::exporter {

// Writes all entries in their own types; the complete file or none
// (atomic_file.h). Memory: the file's bytes twice. Throws Error (exit 5) if the
// disk is full.
void write_state_dict(const std::filesystem::path& path,
                      const model::NamedTensors& state);

}  // namespace headroom::exporter
