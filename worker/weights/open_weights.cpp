#include "worker/weights/open_weights.h"

#include <cstdint>
#include <optional>

#include "configs/layers/layer_cost.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::weights {
namespace {

// A table of a few bytes may define a model of terabytes. So the model may have
// at most twice as many parameters as the file has numbers. This accepts
// incomplete files, for which the loader reports each missing tensor.
void check_parameters(const std::filesystem::path& path,
                      layers::ModelTable table, int64_t classes,
                      const Safetensors& file) {
  table.num_classes = static_cast<int>(classes);
  int64_t wanted = 0, held = 0;
  for (const layers::LayerCost& layer : layers::layer_costs(table))
    wanted += layer.parameters;
  for (const auto& [name, tensor] : file.tensors) held += tensor.numel();
  if (wanted / 2 <= held) return;
  throw Error("weights",
              cat(path.string(), " holds ", held, " numbers, but ", table.name,
                  " has ", wanted, " parameters"),
              "name its model: --cfg");
}

std::vector<std::string> names_of(
    const std::map<std::string, std::string>& metadata, int64_t classes) {
  std::vector<std::string> names = class_names_of(metadata);
  for (std::string& name : names) name = printable(name);
  if (static_cast<int64_t>(names.size()) == classes) return names;
  names.clear();
  for (int64_t i = 0; i < classes; ++i) {
    names.push_back(cat("class", i));
  }
  return names;
}

}  // namespace

OpenedWeights open_weights(const std::filesystem::path& path,
                           const std::string& cfg, at::ScalarType scalar_type) {
  const Safetensors file = read_weights_file(path);
  OpenedWeights opened;
  opened.table = cfg.empty()
                     ? layers::table_of_weights(file.metadata, path.string())
                     : layers::load_model_table(cfg);
  const std::optional<int64_t> known = head_classes(file, opened.table);
  if (!known) {
    throw Error("weights",
                layers::with_network(path.string(), file.metadata) +
                    ": it has no head that " + opened.table.name +
                    " could have",
                "name its model: --cfg");
  }
  const int64_t classes = *known;
  check_parameters(path, opened.table, classes, file);
  opened.model = std::make_unique<model::LayerGraph>(opened.table, classes,
                                                     scalar_type, 0);
  load_weights(path, file, *opened.model, {});
  opened.class_names = names_of(file.metadata, classes);
  opened.metadata = layers::model_metadata(opened.table.name, opened.table);
  for (const char* key : {"names", "imgsz", "stride", "range", kValueRange,
                          layers::kSingleClass}) {
    const auto said = file.metadata.find(key);
    if (said != file.metadata.end()) opened.metadata[key] = said->second;
  }
  opened.ranges = layers::trained_ranges(file.metadata, path.string());
  return opened;
}

}  // namespace headroom::weights
