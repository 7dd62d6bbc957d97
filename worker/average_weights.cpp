#include "worker/average_weights.h"

#include "worker/state_stream.h"

namespace headroom {

void save_average_weights(const std::filesystem::path& path,
                          TrainingState& state, Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const MemoryRetry& retry) {
  StateStream stream(mesh);
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    if (buffer.name.starts_with("average_")) stream.add(buffer, "");
  }
  for (const NamedTensor& entry : state.average_model().state()) {
    if (entry.role == TensorRole::kConstant) stream.add(entry);
  }
  stream.connect();
  if (!stream.is_root()) {
    stream.collect({}, retry);
    return;
  }
  SafetensorsWriter file(path, stream.tensors(), metadata);
  stream.collect([&](const at::Tensor& tensor) { file.write(tensor); }, retry);
  file.commit();
}

}  // namespace headroom
