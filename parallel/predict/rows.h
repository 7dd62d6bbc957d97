// Rows: the forward of a row of a model, operation by operation as
// worker/model/program_row.h runs it, and of the head.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/layers/row_program.h"
#include "parallel/predict/pass.h"

namespace headroom::predict {

// A row of the model, as far as memory goes.
struct ModelRow {
  std::shared_ptr<const layers::RowProgram> program;  // null: Detect
  std::vector<int> inputs;  // earlier rows; -1: the image
  int64_t channels = 0;     // of its output; Detect: of all levels together
  int64_t stride = 1;       // pixels per cell of its output
  int64_t parameters = 0;
  int64_t norm_channels = 0;  // of its batch norms
  int64_t parameter_tensors = 0;

  bool is_head() const { return program == nullptr; }
  // What a recomputed row joins with its neighbours by
  // (worker/model/row.h, RowInside).
  bool is_one_convolution() const {
    return !is_head() &&
           program->inside() == layers::RowInside::kOneConvolution;
  }
  bool saves_only_inputs() const {
    return is_head() || program->inside() == layers::RowInside::kNothing;
  }
};

// All but the head have one output; its heads come level by level.
std::vector<Map> run_row(const Pass& pass, const ModelRow& row,
                         const std::vector<Map>& inputs);

}  // namespace headroom::predict
