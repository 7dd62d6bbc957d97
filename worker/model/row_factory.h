// row_factory: one line of the model table to a Row. What a module consists of
// is configs/row_modules.h's business.
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <memory>
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

}  // namespace headroom
