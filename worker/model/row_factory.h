// row_factory: one line of the model table to a Row. What a module consists of
// is configs/layers/row_modules.h's business.
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/detect.h"
#include "worker/model/model_state.h"
#include "worker/model/row.h"

namespace headroom::model {

struct BuiltRow {
  std::unique_ptr<Row> row;
  layers::MapShape output;   // unset for the head
  Detect* detect = nullptr;  // the row itself, where it is the head
};

// Builds table.rows[index] for inputs of these shapes.
BuiltRow build_row(const layers::ModelTable& table, std::size_t index,
                   const std::vector<layers::MapShape>& inputs,
                   int64_t num_classes, ModelState& state);

}  // namespace headroom::model
