#include "worker/model/row_factory.h"

#include <string>
#include <utility>

#include "configs/row_modules.h"
#include "worker/model/program_row.h"

namespace headroom {

BuiltRow build_row(const ModelTable& table, std::size_t index,
                   const std::vector<MapShape>& inputs, int64_t num_classes,
                   ModelState& state) {
  const std::string prefix = "model." + std::to_string(index) + ".";
  if (table.rows[index].module == kDetectModule) {
    check_detect(table, index, inputs, num_classes);
    auto detect = std::make_unique<Detect>(state, prefix, inputs, table.anchors,
                                           num_classes);
    Detect* head = detect.get();
    return {std::move(detect), {}, head};
  }
  RowProgram program = row_program(table, index, inputs, num_classes);
  const MapShape output = program.output();
  return {std::make_unique<ProgramRow>(state, prefix, std::move(program)),
          output};
}

}  // namespace headroom
