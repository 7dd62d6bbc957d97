#include "worker/average_weights.h"

#include <memory>

#include "worker/checkpoint_files.h"
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
  FirstFailure file_work;
  std::unique_ptr<SafetensorsWriter> file;
  file_work.run([&] {
    file =
        std::make_unique<SafetensorsWriter>(path, stream.tensors(), metadata);
  });
  stream.collect(
      [&](const at::Tensor& tensor) {
        file_work.run([&] { file->write(tensor); });
      },
      retry);
  file_work.run([&] { file->commit(); });
  file_work.rethrow();
}

}  // namespace headroom
