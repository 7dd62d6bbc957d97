#include "worker/checkpoint/average_weights.h"

#include <memory>

#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/state_stream.h"

namespace headroom::checkpoint {

void save_average_weights(const std::filesystem::path& path,
                          step::TrainingState& state, collectives::Mesh* mesh,
                          const std::map<std::string, std::string>& metadata,
                          const memory::MemoryRetry& retry) {
  StateStream stream(mesh);
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    if (buffer.name.starts_with("average_")) stream.add(buffer, "");
  }
  for (const model::NamedTensor& entry : state.average_model().state()) {
    if (entry.role == model::TensorRole::kConstant) stream.add(entry);
  }
  stream.connect();
  if (!stream.is_root()) {
    stream.collect({}, retry);
    return;
  }
  FirstFailure file_work;
  std::unique_ptr<weights::SafetensorsWriter> file;
  file_work.run([&] {
    file = std::make_unique<weights::SafetensorsWriter>(path, stream.tensors(),
                                                        metadata);
  });
  stream.collect(
      [&](const at::Tensor& tensor) {
        file_work.run([&] { file->write(tensor); });
      },
      retry);
  file_work.run([&] { file->commit(); });
  file_work.rethrow();
}

}  // namespace headroom::checkpoint
