#include "parallel/nvml/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/units.h"

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
  int (*capability)(Device, int*, int*) = nullptr;
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
  loaded->find(loaded->capability, "nvmlDeviceGetCudaComputeCapability");
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
    int major = 0, minor = 0;
    if (library_->capability != nullptr &&
        library_->capability(device, &major, &minor) == kSuccess) {
      card.compute_capability = 10 * major + minor;
    }
    card.processes = library_->read_processes(device);
    cards.push_back(std::move(card));
  }
  return cards;
}

namespace {

[[noreturn]] void refuse(const std::string& device, const std::string& what,
                         const std::string& remedy) {
  throw Error("device", "--device " + device + ": " + what, remedy);
}

std::string cards_text(const std::vector<Card>& cards) {
  std::string text;
  for (const Card& card : cards) {
    text += (text.empty() ? "" : ", ") + std::to_string(card.index) + " (" +
            card.name + ")";
  }
  return text;
}

}  // namespace

int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes) {
  int64_t own = 0;
  bool is_listed = false;
  for (const CardProcess& process : card.processes) {
    if (std::ranges::find(own_pids, process.pid) == own_pids.end()) continue;
    // A process whose bytes the driver does not tell is not told apart.
    if (!process.used_bytes) continue;
    own += *process.used_bytes;
    is_listed = true;
  }
  return std::max<int64_t>(0,
                           card.used_bytes() - (is_listed ? own : own_bytes));
}

std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml) {
  const std::vector<Card> present = nvml.cards();
  std::vector<Card> asked;
  for (const int index : parse_device_list(device)) {
    const auto card = std::ranges::find_if(
        present, [&](const Card& one) { return one.index == index; });
    if (card == present.end()) {
      refuse(device,
             present.empty() ? nvml.reason()
                             : "there is no card " + std::to_string(index) +
                                   "; here is " + cards_text(present),
             present.empty() ? "use --device cpu" : "name one of these");
    }
    asked.push_back(*card);
  }
  return asked;
}

std::string card_text(const Card& card, int64_t others_bytes) {
  return "card " + std::to_string(card.index) + ": " + card.name + ", " +
         format_bytes(card.total_bytes) +
         (others_bytes > 0
              ? ", others use " + format_bytes(others_bytes) + " of it"
              : ", nobody else uses it");
}

}  // namespace headroom::nvml
