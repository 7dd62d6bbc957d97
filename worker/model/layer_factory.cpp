#include "worker/model/layer_factory.h"

#include <string>
#include <utility>

#include "configs/layers/layer_modules.h"
#include "worker/model/program_layer.h"

namespace headroom::model {

BuiltLayer build_layer(const layers::ModelTable& table, std::size_t index,
                       const std::vector<layers::MapShape>& inputs,
                       int64_t num_classes, ModelState& state) {
  const std::string prefix = "model." + std::to_string(index) + ".";
  if (table.layers[index].module == layers::kDetectModule) {
    layers::check_detect(table, index, inputs, num_classes);
    auto detect = std::make_unique<Detect>(state, prefix, inputs, table.anchors,
                                           num_classes);
    Detect* head = detect.get();
    return {std::move(detect), {}, head};
  }
  layers::LayerProgram program =
      layers::layer_program(table, index, inputs, num_classes);
  const layers::MapShape output = program.output();
  return {std::make_unique<ProgramLayer>(state, prefix, std::move(program)),
          output};
}

}  // namespace headroom::model
