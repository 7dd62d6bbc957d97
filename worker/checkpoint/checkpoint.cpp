#include "worker/checkpoint/checkpoint.h"

#include <c10/util/StringUtil.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/state_shards.h"
#include "worker/weights/safetensors.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

OrderedJson counters_to_json(const step::TrainingCounters& counters) {
  OrderedJson json = {
      {"committed_steps", counters.committed_steps},
      {"optimizer_steps", counters.optimizer_steps},
      {"last_optimizer_step", counters.last_optimizer_step},
      {"best_fitness", counters.best_fitness},
      {"best_epoch", counters.best_epoch},
      {"recorded_epochs", counters.recorded_epochs},
      {"epoch_means",
       {{"steps", counters.meter.steps}, {"terms", counters.meter.means}}},
      {"loss_scale",
       {{"value", counters.loss_scale.value},
        {"good_steps", counters.loss_scale.good_steps}}}};
  if (!counters.class_maps.empty()) json["class_maps"] = counters.class_maps;
  if (counters.data.images > 0) {
    json["data"] = {{"images", counters.data.images},
                    {"digest", counters.data.digest}};
  }
  return json;
}

step::TrainingCounters counters_from_json(const OrderedJson& json) {
  step::TrainingCounters counters;
  counters.committed_steps = json.at("committed_steps").get<int64_t>();
  counters.optimizer_steps = json.at("optimizer_steps").get<int64_t>();
  counters.last_optimizer_step = json.at("last_optimizer_step").get<int64_t>();
  counters.best_fitness = json.at("best_fitness").get<double>();
  counters.best_epoch = json.at("best_epoch").get<int64_t>();
  counters.recorded_epochs = json.at("recorded_epochs").get<int64_t>();
  const OrderedJson& means = json.at("epoch_means");
  counters.meter.steps = means.at("steps").get<int64_t>();
  if (means.contains("terms")) {
    counters.meter.means = means.at("terms").get<LossTerms>();
  } else {  // checkpoints of older versions have heads with anchors
    const auto names = loss_term_names(/*has_anchors=*/true);
    for (size_t i = 0; i < names.size(); ++i) {
      counters.meter.means[i] = means.at(names[i]).get<double>();
    }
  }
  // Checkpoints of older versions have no loss scale.
  if (json.contains("loss_scale")) {
    const OrderedJson& scale = json.at("loss_scale");
    counters.loss_scale = {scale.at("value").get<double>(),
                           scale.at("good_steps").get<int64_t>()};
  }
  if (json.contains("class_maps")) {
    counters.class_maps = json.at("class_maps").get<std::vector<double>>();
  }
  if (json.contains("data")) {
    const OrderedJson& data = json.at("data");
    counters.data = {data.at("images").get<int64_t>(),
                     data.at("digest").get<uint64_t>()};
  }
  return counters;
}

// Throws Error if the checkpoint's tensors differ from `expected`. Called
// before the state is changed.
void check_tensors(const StateReader& reader,
                   const std::vector<weights::TensorDescription>& expected) {
  const fs::path& file = reader.file();
  std::map<std::string, const weights::TensorDescription*> entries;
  for (const weights::TensorDescription& entry : reader.tensors()) {
    entries[entry.name] = &entry;
  }
  for (const weights::TensorDescription& tensor : expected) {
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) {
      throw damaged_checkpoint(
          file, "does not hold " + tensor.name +
                    ": it belongs to another model or optimizer");
    }
    const weights::TensorDescription& entry = *found->second;
    if (entry.sizes != tensor.sizes) {
      throw damaged_checkpoint(file,
                               "holds " + tensor.name + " with shape " +
                                   c10::str(at::IntArrayRef(entry.sizes)) +
                                   ", this run's model has " +
                                   c10::str(at::IntArrayRef(tensor.sizes)));
    }
    if (entry.type != tensor.type) {
      throw damaged_checkpoint(
          file, "holds " + tensor.name + " as " + c10::toString(entry.type) +
                    ", this run computes in " + c10::toString(tensor.type) +
                    " (resume with the --precision it was made with)");
    }
  }
}

// A checkpoint that has been verified.
struct OpenCheckpoint {
  fs::path folder;
  std::string counters;  // JSON
  std::unique_ptr<StateReader> reader;
};

OpenCheckpoint open_folder(const fs::path& folder, const StateStream& stream) {
  const std::string text = read_manifest(folder);
  const OrderedJson manifest = OrderedJson::parse(text);
  OpenCheckpoint open;
  open.folder = folder;
  open.counters = manifest.at("counters").dump();
  counters_from_json(manifest.at("counters"));
  open.reader = std::make_unique<StateReader>(folder, names_in(text));
  check_tensors(*open.reader, stream.tensors());
  return open;
}

// Renames damaged checkpoints, so that they do not count as the newest ones
// when old checkpoints are removed, but can still be examined. Removes
// unfinished checkpoints.
void set_aside(const std::vector<StepFolder>& folders) {
  for (const auto& [step, folder] : folders) {
    const fs::path aside = folder.string() + ".damaged";
    if (!StepFolder{step, folder}.is_finished()) {
      remove_step_folder(folder);
      continue;
    }
    remove_step_folder(aside);
    std::error_code error;
    fs::rename(folder, aside, error);
    if (error) log::warn("cannot rename " + folder.string());
  }
}

// Opens the newest undamaged checkpoint; called at the root.
OpenCheckpoint open_newest(const fs::path& checkpoints,
                           const StateStream& stream,
                           LoadedCheckpoint& loaded) {
  std::vector<StepFolder> refused;
  for (const StepFolder& folder : step_folders(checkpoints)) {
    std::string fault;
    try {
      OpenCheckpoint open = open_folder(folder.path, stream);
      set_aside(refused);
      return open;
    } catch (const Error& error) {
      fault = error.what();
    } catch (const nlohmann::json::exception& error) {
      fault = "[checkpoint] " + (folder.path / run_files::kManifest).string() +
              " is not a checkpoint's manifest: " + error.what();
    }
    loaded.damaged.push_back(fault);
    refused.push_back(folder);
  }
  throw Error("resume",
              "no usable checkpoint in " + checkpoints.string() +
                  (loaded.damaged.empty() ? " (there is none at all)"
                                          : "; " + loaded.damaged.front()),
              "resume another run, or start a new one without --resume");
}

bool all_have(collectives::Mesh* mesh, bool root_has) {
  if (mesh == nullptr) return root_has;
  return collectives::broadcast_bytes(mesh->world, root_has ? "1" : "", 0) ==
         "1";
}

}  // namespace

StateStream checkpoint_stream(step::TrainingState& state,
                              collectives::Mesh* mesh) {
  StateStream stream(mesh);
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    stream.add(buffer, buffer.name + ".");
  }
  stream.connect();
  return stream;
}

fs::path save_checkpoint(const fs::path& checkpoints,
                         step::TrainingState& state, collectives::Mesh* mesh,
                         const std::string& plan_json, int64_t keep,
                         const memory::MemoryRetry& retry) {
  const int64_t step = state.counters.committed_steps;
  const fs::path folder = checkpoints / (cat("step-", step));
  std::error_code error;
  StateStream stream = checkpoint_stream(state, mesh);
  if (all_have(mesh, stream.is_root() &&
                         fs::exists(folder / run_files::kManifest, error)))
    return folder;
  if (!stream.is_root()) {
    stream.collect({}, retry);
    all_have(mesh, true);  // wait until rank 0 has finished the files
    return folder;
  }
  FirstFailure file_work;
  std::unique_ptr<CheckpointFile> file;
  file_work.run([&] {
    file =
        std::make_unique<CheckpointFile>(checkpoints, step, stream.tensors());
  });
  stream.collect(
      [&](const at::Tensor& tensor) {
        file_work.run([&] { file->write(tensor); });
      },
      retry);
  file_work.run([&] {
    file->commit({step, counters_to_text(state.counters), plan_json}, keep);
  });
  all_have(mesh, true);
  file_work.rethrow();
  return folder;
}

LoadedCheckpoint load_newest_checkpoint(const fs::path& checkpoints,
                                        step::TrainingState& state,
                                        collectives::Mesh* mesh) {
  StateStream stream = checkpoint_stream(state, mesh);
  LoadedCheckpoint loaded;
  OpenCheckpoint open;
  if (stream.is_root()) open = open_newest(checkpoints, stream, loaded);
  if (mesh != nullptr) {
    open.counters = collectives::broadcast_bytes(mesh->world, open.counters, 0);
    open.folder =
        collectives::broadcast_bytes(mesh->world, open.folder.string(), 0);
  }
  stream.distribute([&](const std::string& name, at::Tensor& target) {
    target.copy_(open.reader->read(name));
  });
  state.renew_compute_weights();
  state.counters = counters_from_json(OrderedJson::parse(open.counters));
  loaded.folder = open.folder;
  return loaded;
}

int64_t newest_checkpoint(const fs::path& checkpoints) {
  for (const StepFolder& folder : step_folders(checkpoints)) {
    if (folder.is_finished()) return folder.step;
  }
  return 0;
}

std::string counters_to_text(const step::TrainingCounters& counters) {
  return counters_to_json(counters).dump();
}

step::TrainingCounters counters_from_text(const std::string& text) {
  return counters_from_json(OrderedJson::parse(text));
}

int64_t checkpoint_bytes(const std::vector<layers::LayerCost>& layers,
                         optim::OptimizerKind optimizer, at::ScalarType type) {
  // For each parameter: the weight, its average, the accumulated gradient and
  // the moments.
  const auto per_parameter =
      static_cast<int64_t>(3 + optim::moment_names(optimizer).size());
  int64_t elements = 0;
  for (const layers::LayerCost& layer : layers) {
    // Four values per channel: the running mean and variance, and the averages
    // of both.
    elements += per_parameter * layer.parameters + 4 * layer.norm_channels;
  }
  return elements * static_cast<int64_t>(c10::elementSize(type));
}

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
