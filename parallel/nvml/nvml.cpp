#include "parallel/nvml/nvml.h"

#include <dlfcn.h>

#include <array>

namespace headroom::nvml {
namespace {

// NVML's functions, declared after NVIDIA's documentation with its names and
// our types.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr uint64_t kNotAvailable = ~uint64_t{0};
using Device = void*;
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Memory {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory_v2)(Device, MemoryV2*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  bool initialised = false;

  ~Library() {
    if (initialised) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  template <typename Function>
  bool find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(handle, symbol));
    return function != nullptr;
  }

  // The sizes in either version of the structure: cards got reserved bytes
  // later.
  bool read_memory(Device device, Card& card) const {
    MemoryV2 v2 = {};
    v2.version = static_cast<unsigned>(sizeof(MemoryV2)) | 2u << 24;
    if (memory_v2 != nullptr && memory_v2(device, &v2) == kSuccess) {
      card.total_bytes = static_cast<int64_t>(v2.total);
      card.reserved_bytes = static_cast<int64_t>(v2.reserved);
      card.free_bytes = static_cast<int64_t>(v2.free);
      return true;
    }
    Memory v1 = {};
    if (memory == nullptr || memory(device, &v1) != kSuccess) return false;
    card.total_bytes = static_cast<int64_t>(v1.total);
    card.free_bytes = static_cast<int64_t>(v1.free);
    return true;
  }

  std::vector<CardProcess> read_processes(Device device) const {
    std::vector<ProcessInfo> infos;
    unsigned size = 16;
    int status = kInsufficientSize;
    // Processes come and go between two calls.
    for (int attempt = 0; attempt < 4 && status == kInsufficientSize;
         ++attempt) {
      size += 16;
      infos.assign(size, {});
      status = processes == nullptr ? kSuccess + 1
                                    : processes(device, &size, infos.data());
    }
    std::vector<CardProcess> found;
    if (status != kSuccess) return found;
    for (unsigned i = 0; i < size; ++i) {
      CardProcess process;
      process.pid = infos[i].pid;
      if (infos[i].used_gpu_memory != kNotAvailable) {
        process.used_bytes = static_cast<int64_t>(infos[i].used_gpu_memory);
      }
      found.push_back(process);
    }
    return found;
  }
};

Nvml::Nvml(const std::string& library) {
  auto loaded = std::make_shared<Library>();
  loaded->handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle == nullptr) {
    reason_ = "there is no NVIDIA driver, which CUDA needs: " + library +
              " is not here";
    return;
  }
  if (!loaded->find(loaded->init, "nvmlInit_v2") ||
      !loaded->find(loaded->shutdown, "nvmlShutdown") ||
      !loaded->find(loaded->error_string, "nvmlErrorString") ||
      !loaded->find(loaded->count, "nvmlDeviceGetCount_v2") ||
      !loaded->find(loaded->by_index, "nvmlDeviceGetHandleByIndex_v2") ||
      !loaded->find(loaded->uuid, "nvmlDeviceGetUUID") ||
      !loaded->find(loaded->name, "nvmlDeviceGetName")) {
    reason_ = library + " is not the driver's library: it lacks a function";
    return;
  }
  loaded->find(loaded->memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  loaded->find(loaded->memory, "nvmlDeviceGetMemoryInfo");
  loaded->find(loaded->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (const int status = loaded->init(); status != kSuccess) {
    reason_ = "the NVIDIA driver does not answer: " +
              std::string(loaded->error_string(status));
    return;
  }
  loaded->initialised = true;
  library_ = std::move(loaded);
  if (cards().empty()) reason_ = "the NVIDIA driver has no card";
}

std::vector<Card> Nvml::cards() const {
  std::vector<Card> cards;
  unsigned count = 0;
  if (library_ == nullptr || library_->count(&count) != kSuccess) return cards;
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    // A card that has fallen off the bus keeps its index.
    if (library_->by_index(index, &device) != kSuccess) continue;
    Card card;
    card.index = static_cast<int>(index);
    if (!library_->read_memory(device, card)) continue;
    std::array<char, 128> text = {};
    if (library_->uuid(device, text.data(), text.size()) == kSuccess) {
      card.uuid = text.data();
    }
    text = {};
    if (library_->name(device, text.data(), text.size()) == kSuccess) {
      card.name = text.data();
    }
    card.processes = library_->read_processes(device);
    cards.push_back(std::move(card));
  }
  return cards;
}

}  // namespace headroom::nvml
