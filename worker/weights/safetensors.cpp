#include "worker/weights/safetensors.h"

#include "parallel/base/check.h"
#include "worker/weights/safetensors_stream.h"

namespace headroom::weights {

const at::Tensor& Safetensors::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error("safetensors", "there is no tensor \"" + name + "\"",
                "use a file that has it");
  return found->second;
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  SafetensorsReader file(path);
  Safetensors result;
  for (const SafetensorsEntry& entry : file.header().entries)
    result.tensors.emplace(entry.name, file.read(entry));
  result.metadata = file.header().metadata;
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  return SafetensorsReader(path).header();
}

void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::map<std::string, const at::Tensor*> by_name;
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, tensor] : tensors) {
    by_name[name] = &tensor;
    descriptions.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  order_for_file(descriptions);
  SafetensorsWriter file(path, descriptions, metadata);
  for (const TensorDescription& description : descriptions)
    file.write(*by_name.at(description.name));
  file.commit();
}

}  // namespace headroom::weights
