#include "worker/model/row_factory.h"

#include <string>
#include <utility>

#include "configs/layers/row_modules.h"
#include "worker/model/program_row.h"

namespace headroom::model {

BuiltRow build_row(const layers::ModelTable& table, std::size_t index,
                   const std::vector<layers::MapShape>& inputs,
                   int64_t num_classes, ModelState& state) {
  const std::string prefix = "model." + std::to_string(index) + ".";
  if (table.rows[index].module == layers::kDetectModule) {
    layers::check_detect(table, index, inputs, num_classes);
    auto detect = std::make_unique<Detect>(state, prefix, inputs, table.anchors,
                                           num_classes);
    Detect* head = detect.get();
    return {std::move(detect), {}, head};
  }
  layers::RowProgram program =
      layers::row_program(table, index, inputs, num_classes);
  const layers::MapShape output = program.output();
  return {std::make_unique<ProgramRow>(state, prefix, std::move(program)),
          output};
}

}  // namespace headroom::model
