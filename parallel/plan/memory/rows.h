// Rows: the forward of each kind of row of a model, block by block as
// worker/model/blocks.h runs it, and of the head with its loss.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/plan/memory/pass.h"

namespace headroom::memory {

// A row of the model, as far as memory goes.
struct ModelRow {
  enum class Kind { kConv, kC3, kSppf, kUpsample, kConcat, kDetect };
  Kind kind = Kind::kConv;
  std::vector<int> inputs;  // earlier rows; -1: the image
  int64_t channels = 0;     // of its output; Detect: of all levels together
  int64_t stride = 1;       // pixels per cell of its output
  int64_t kernel = 1;       // Conv
  int64_t repeats = 0;      // C3
  bool shortcut = false;    // C3
  int64_t parameters = 0;
  int64_t norm_channels = 0;  // of its batch norms
  int64_t parameter_tensors = 0;

  // What a recomputed row joins with its neighbours by
  // (worker/model/row.h, RowInside).
  bool is_one_convolution() const { return kind == Kind::kConv; }
  bool saves_only_inputs() const {
    return kind == Kind::kUpsample || kind == Kind::kConcat ||
           kind == Kind::kDetect;
  }
};

// All but Detect have one output; Detect's heads come level by level.
std::vector<Map> run_row(const Pass& pass, const ModelRow& row,
                         const std::vector<Map>& inputs);

}  // namespace headroom::memory
