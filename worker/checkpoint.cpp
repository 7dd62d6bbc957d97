#include "worker/checkpoint.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "worker/gather.h"
#include "worker/model/atomic_file.h"
#include "worker/model/file_digest.h"
#include "worker/model/safetensors_stream.h"
#include "worker/state_stream.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kManifest = "MANIFEST.json";
constexpr const char* kState = "state.safetensors";

struct Folder {
  int64_t step = 0;
  fs::path path;
};

// step-N folders, newest first, finished or not.
std::vector<Folder> step_folders(const fs::path& checkpoints) {
  std::vector<Folder> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data() + 5, end, step);
    if (failure == std::errc() && stop == end) {
      folders.push_back({step, entry.path()});
    }
  }
  std::sort(folders.begin(), folders.end(),
            [](const Folder& a, const Folder& b) { return a.step > b.step; });
  return folders;
}

Json counters_to_json(const TrainingCounters& counters) {
  return {{"committed_steps", counters.committed_steps},
          {"optimizer_steps", counters.optimizer_steps},
          {"last_optimizer_step", counters.last_optimizer_step},
          {"best_fitness", counters.best_fitness},
          {"best_epoch", counters.best_epoch},
          {"recorded_epochs", counters.recorded_epochs},
          {"epoch_means",
           {{"steps", counters.meter.steps},
            {"box", counters.meter.box},
            {"obj", counters.meter.obj},
            {"cls", counters.meter.cls}}},
          {"loss_scale",
           {{"value", counters.loss_scale.value},
            {"good_steps", counters.loss_scale.good_steps}}}};
}

TrainingCounters counters_from_json(const Json& json) {
  TrainingCounters counters;
  counters.committed_steps = json.at("committed_steps").get<int64_t>();
  counters.optimizer_steps = json.at("optimizer_steps").get<int64_t>();
  counters.last_optimizer_step = json.at("last_optimizer_step").get<int64_t>();
  counters.best_fitness = json.at("best_fitness").get<double>();
  counters.best_epoch = json.at("best_epoch").get<int64_t>();
  counters.recorded_epochs = json.at("recorded_epochs").get<int64_t>();
  const Json& means = json.at("epoch_means");
  counters.meter = {
      means.at("steps").get<int64_t>(), means.at("box").get<double>(),
      means.at("obj").get<double>(), means.at("cls").get<double>()};
  if (json.contains("loss_scale")) {  // not in checkpoints of older builds
    const Json& scale = json.at("loss_scale");
    counters.loss_scale = {scale.at("value").get<double>(),
                           scale.at("good_steps").get<int64_t>()};
  }
  return counters;
}

Error damaged(const fs::path& file, const std::string& why) {
  return Error("checkpoint", file.string() + " " + why, "");
}

// The manifest, once every file it names has been found whole.
Json read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw damaged(path, "is missing: it was never finished");
  Json manifest = Json::parse(file, nullptr, false);
  if (manifest.is_discarded() || !manifest.is_object() ||
      !manifest.contains("schema")) {
    throw damaged(path, "is not a checkpoint's manifest");
  }
  if (manifest["schema"] != kSchema) {
    throw damaged(path, "has schema " + manifest["schema"].dump() +
                            ", this build reads schema " +
                            std::to_string(kSchema));
  }
  for (const Json& entry : manifest.at("files")) {
    const fs::path part = folder / entry.at("name").get<std::string>();
    std::error_code error;
    const uintmax_t size = fs::file_size(part, error);
    const uintmax_t expected = entry.at("bytes").get<uintmax_t>();
    if (error) throw damaged(part, "is missing");
    if (size != expected) {
      throw damaged(part, "has " + std::to_string(size) + " bytes, not " +
                              std::to_string(expected));
    }
    const std::string digest = file_digest(part);
    if (digest != entry.at("xxh3_128").get<std::string>()) {
      throw damaged(part, "is damaged: its digest is " + digest +
                              ", the manifest says " +
                              entry.at("xxh3_128").get<std::string>());
    }
  }
  return manifest;
}

std::map<std::string, const SafetensorsEntry*> by_name(
    const SafetensorsReader& reader) {
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : reader.header().entries) {
    entries[entry.name] = &entry;
  }
  return entries;
}

// Everything of the state, under "<buffer>.<name>".
StateStream stream_of(TrainingState& state, Mesh* mesh) {
  StateStream stream(mesh);
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    stream.add(buffer, buffer.name + ".");
  }
  stream.connect();
  return stream;
}

// Everything is looked at before anything is changed.
void check_tensors(const fs::path& file, const SafetensorsReader& reader,
                   const std::vector<TensorDescription>& expected) {
  const auto entries = by_name(reader);
  for (const TensorDescription& tensor : expected) {
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) {
      throw damaged(file, "does not hold " + tensor.name +
                              ": it belongs to another model or optimizer");
    }
    const SafetensorsEntry& entry = *found->second;
    if (entry.shape != tensor.sizes) {
      throw damaged(file, "holds " + tensor.name + " with shape " +
                              c10::str(at::IntArrayRef(entry.shape)) +
                              ", this run's model has " +
                              c10::str(at::IntArrayRef(tensor.sizes)));
    }
    if (scalar_type_of(entry.type) != tensor.type) {
      throw damaged(file,
                    "holds " + tensor.name + " as " +
                        c10::toString(scalar_type_of(entry.type)) +
                        ", this run computes in " + c10::toString(tensor.type) +
                        " (resume with the --precision it was made with)");
    }
  }
}

// A checkpoint that has been found whole.
struct OpenCheckpoint {
  fs::path folder;
  std::string counters;  // JSON
  std::unique_ptr<SafetensorsReader> reader;
};

OpenCheckpoint open_folder(const fs::path& folder, const StateStream& stream) {
  const Json manifest = read_manifest(folder);
  OpenCheckpoint open;
  open.folder = folder;
  open.counters = manifest.at("counters").dump();
  counters_from_json(manifest.at("counters"));
  open.reader = std::make_unique<SafetensorsReader>(folder / kState);
  check_tensors(folder / kState, *open.reader, stream.tensors());
  return open;
}

// A damaged checkpoint must not count as the newest when old ones are removed,
// but it is kept for whoever wants to look at it.
void set_aside(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    const fs::path aside = folder.string() + ".damaged";
    std::error_code error;
    fs::remove_all(aside, error);
    fs::rename(folder, aside, error);
    if (error) log::warn("cannot rename " + folder.string());
  }
}

// The newest whole one, at the root.
OpenCheckpoint open_newest(const fs::path& checkpoints,
                           const StateStream& stream,
                           LoadedCheckpoint& loaded) {
  std::vector<fs::path> refused;
  for (const Folder& folder : step_folders(checkpoints)) {
    std::string fault;
    try {
      OpenCheckpoint open = open_folder(folder.path, stream);
      set_aside(refused);
      return open;
    } catch (const Error& error) {
      fault = error.what();
    } catch (const nlohmann::json::exception& error) {
      fault = "[checkpoint] " + (folder.path / kManifest).string() +
              " is not a checkpoint's manifest: " + error.what();
    }
    loaded.damaged.push_back(fault);
    refused.push_back(folder.path);
  }
  throw Error("resume",
              "no usable checkpoint in " + checkpoints.string() +
                  (loaded.damaged.empty() ? " (there is none at all)"
                                          : "; " + loaded.damaged.front()),
              "resume another run, or start a new one without --resume");
}

void write_manifest(const fs::path& folder, const TrainingCounters& counters,
                    const std::string& plan_json) {
  const fs::path file = folder / kState;
  const Json manifest = {
      {"schema", kSchema},
      {"counters", counters_to_json(counters)},
      {"plan", Json::parse(plan_json)},
      {"files", Json::array({{{"name", kState},
                              {"bytes", fs::file_size(file)},
                              {"xxh3_128", file_digest(file)}}})}};
  const std::string text = manifest.dump(2) + "\n";
  AtomicFile manifest_file(folder / kManifest);
  manifest_file.write(text.data(), text.size());
  manifest_file.commit();
}

// Only a finished newer one replaces an older one.
void remove_old(const fs::path& checkpoints, int64_t step, int64_t keep) {
  std::error_code error;
  int64_t kept = 0;
  for (const Folder& other : step_folders(checkpoints)) {
    const bool finished = fs::exists(other.path / kManifest, error);
    if (finished && kept < keep) {
      ++kept;
    } else if (other.step <= step) {
      fs::remove_all(other.path, error);
    }
  }
}

bool all_have(Mesh* mesh, bool root_has) {
  if (mesh == nullptr) return root_has;
  return broadcast_bytes(mesh->world, root_has ? "1" : "", 0) == "1";
}

}  // namespace

fs::path save_checkpoint(const fs::path& checkpoints, TrainingState& state,
                         Mesh* mesh, const std::string& plan_json, int64_t keep,
                         const MemoryRetry& retry) {
  const int64_t step = state.counters.committed_steps;
  const fs::path folder = checkpoints / ("step-" + std::to_string(step));
  std::error_code error;
  StateStream stream = stream_of(state, mesh);
  if (all_have(mesh, stream.is_root() && fs::exists(folder / kManifest, error)))
    return folder;
  if (!stream.is_root()) {
    stream.collect({}, retry);
    all_have(mesh, true);  // waits until rank 0 has finished the files
    return folder;
  }
  fs::remove_all(folder, error);  // an unfinished one of a killed run
  fs::create_directories(folder, error);
  SafetensorsWriter file(folder / kState, stream.tensors(),
                         {{"format", "headroom-checkpoint"}});
  stream.collect([&](const at::Tensor& tensor) { file.write(tensor); }, retry);
  file.commit();
  write_manifest(folder, state.counters, plan_json);
  remove_old(checkpoints, step, keep);
  all_have(mesh, true);
  return folder;
}

LoadedCheckpoint load_newest_checkpoint(const fs::path& checkpoints,
                                        TrainingState& state, Mesh* mesh) {
  StateStream stream = stream_of(state, mesh);
  LoadedCheckpoint loaded;
  OpenCheckpoint open;
  if (stream.is_root()) open = open_newest(checkpoints, stream, loaded);
  if (mesh != nullptr) {
    open.counters = broadcast_bytes(mesh->world, open.counters, 0);
    open.folder = broadcast_bytes(mesh->world, open.folder.string(), 0);
  }
  std::map<std::string, const SafetensorsEntry*> entries;
  if (open.reader) entries = by_name(*open.reader);
  stream.distribute([&](const std::string& name, at::Tensor& target) {
    target.copy_(open.reader->read(*entries.at(name)));
  });
  state.renew_compute_weights();
  state.counters = counters_from_json(Json::parse(open.counters));
  loaded.folder = open.folder;
  return loaded;
}

int64_t newest_checkpoint(const fs::path& checkpoints) {
  std::error_code error;
  for (const Folder& folder : step_folders(checkpoints)) {
    if (fs::exists(folder.path / kManifest, error)) return folder.step;
  }
  return 0;
}

std::string counters_to_text(const TrainingCounters& counters) {
  return counters_to_json(counters).dump();
}

TrainingCounters counters_from_text(const std::string& text) {
  return counters_from_json(Json::parse(text));
}

int64_t checkpoint_bytes(const TrainingState& state) {
  return state.total_bytes();
}

}  // namespace headroom
