// row_factory: one line of the model table to a Row.
//
// Applies the scaling of the YOLOv5 family: repeats k > 1 become max(round(k *
// depth_multiple), 1), channels c become ceil(c * width_multiple / m) * m with
// m = channel_multiple, except where c is already the head's width.
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/model_table.h"
#include "worker/model/detect.h"
#include "worker/model/model_state.h"
#include "worker/model/row.h"

namespace headroom {

struct BuiltRow {
  std::unique_ptr<Row> row;
  MapShape output;           // unset for the head
  Detect* detect = nullptr;  // the row itself, where it is the head
};

// Builds table.rows[index] for inputs of these shapes.
BuiltRow build_row(const ModelTable& table, std::size_t index,
                   const std::vector<MapShape>& inputs, int64_t num_classes,
                   ModelState& state);

// Error of a row, with its place.
[[noreturn]] void fail_row(const ModelTable& table, std::size_t index,
                           const std::string& what, const std::string& remedy);

}  // namespace headroom
