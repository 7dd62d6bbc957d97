#include "worker/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "worker/model/atomic_file.h"
#include "worker/model/file_digest.h"
#include "worker/model/safetensors.h"

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

std::string entry_name(const TrainingState::Buffer& buffer, size_t slot) {
  return buffer.name + "." + buffer.arena->slots()[slot].name;
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
            {"cls", counters.meter.cls}}}};
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

void load_folder(const fs::path& folder, TrainingState& state) {
  const Json manifest = read_manifest(folder);
  const fs::path file = folder / kState;
  const std::map<std::string, at::Tensor> tensors =
      read_safetensors(file).tensors;

  // Everything is looked at before anything is changed.
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t slot = 0; slot < buffer.arena->slots().size(); ++slot) {
      const std::string name = entry_name(buffer, slot);
      const at::Tensor target = buffer.arena->view(slot, *buffer.flat);
      const auto found = tensors.find(name);
      if (found == tensors.end()) {
        throw damaged(
            file, "does not hold " + name + ": it belongs to another model");
      }
      if (found->second.sizes() != target.sizes()) {
        throw damaged(file, "holds " + name + " with shape " +
                                c10::str(found->second.sizes()) +
                                ", this run's model has " +
                                c10::str(target.sizes()));
      }
      if (found->second.scalar_type() != target.scalar_type()) {
        throw damaged(file,
                      "holds " + name + " as " +
                          c10::toString(found->second.scalar_type()) +
                          ", this run computes in " +
                          c10::toString(target.scalar_type()) +
                          " (resume with the --precision it was made with)");
      }
    }
  }
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t slot = 0; slot < buffer.arena->slots().size(); ++slot) {
      buffer.arena->view(slot, *buffer.flat)
          .copy_(tensors.at(entry_name(buffer, slot)));
    }
  }
  state.counters = counters_from_json(manifest.at("counters"));
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

}  // namespace

fs::path save_checkpoint(const fs::path& checkpoints, TrainingState& state,
                         const std::string& plan_json, int64_t keep) {
  const int64_t step = state.counters.committed_steps;
  const fs::path folder = checkpoints / ("step-" + std::to_string(step));
  std::error_code error;
  if (fs::exists(folder / kManifest, error)) return folder;
  fs::remove_all(folder, error);  // an unfinished one of a killed run
  fs::create_directories(folder, error);

  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t slot = 0; slot < buffer.arena->slots().size(); ++slot) {
      tensors.emplace_back(entry_name(buffer, slot),
                           buffer.arena->view(slot, *buffer.flat));
    }
  }
  const fs::path file = folder / kState;
  write_safetensors(file, tensors, {{"format", "headroom-checkpoint"}});

  const Json manifest = {
      {"schema", kSchema},
      {"counters", counters_to_json(state.counters)},
      {"plan", Json::parse(plan_json)},
      {"files", Json::array({{{"name", kState},
                              {"bytes", fs::file_size(file)},
                              {"xxh3_128", file_digest(file)}}})}};
  const std::string text = manifest.dump(2) + "\n";
  AtomicFile manifest_file(folder / kManifest);
  manifest_file.write(text.data(), text.size());
  manifest_file.commit();

  // Only a finished newer one replaces an older one.
  int64_t kept = 0;
  for (const Folder& other : step_folders(checkpoints)) {
    const bool finished = fs::exists(other.path / kManifest, error);
    if (finished && kept < keep) {
      ++kept;
    } else if (other.step <= step) {
      fs::remove_all(other.path, error);
    }
  }
  return folder;
}

LoadedCheckpoint load_newest_checkpoint(const fs::path& checkpoints,
                                        TrainingState& state) {
  LoadedCheckpoint loaded;
  std::vector<fs::path> refused;
  for (const Folder& folder : step_folders(checkpoints)) {
    std::string fault;
    try {
      load_folder(folder.path, state);
      loaded.folder = folder.path;
      set_aside(refused);
      return loaded;
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

int64_t checkpoint_bytes(TrainingState& state) {
  int64_t bytes = 0;
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    bytes += buffer.flat->numel() * buffer.flat->element_size();
  }
  return bytes;
}

}  // namespace headroom
