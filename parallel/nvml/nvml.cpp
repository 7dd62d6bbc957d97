#include "parallel/nvml/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::nvml {
namespace {

// NVML's functions, declared from NVIDIA's documentation with our own types.
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
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
constexpr int kProhibited = 2;
constexpr int kExclusiveProcess = 3;

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*memory_v2)(Device, MemoryV2*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*compute_mode)(Device, int*) = nullptr;
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  int (*most_parts)(Device, unsigned*) = nullptr;
  int (*part)(Device, unsigned, Device*) = nullptr;
  int (*whole_of_part)(Device, Device*) = nullptr;
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

  // Reads the memory sizes: with version 2 of the structure, which has the
  // reserved bytes, or else with version 1.
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
    // The number of processes may grow between two calls: try again.
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

  // For a MIG part, the address of its whole card. "" if it is not reported.
  std::string read_bus_address(Device device) const {
    if (pci == nullptr) return "";
    PciInfo info = {};
    Device whole = nullptr;
    const bool is_part =
        whole_of_part != nullptr && whole_of_part(device, &whole) == kSuccess;
    if (pci(is_part ? whole : device, &info) != kSuccess) return "";
    std::array<char, 32> text = {};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", info.domain,
                  info.bus, info.device);
    return text.data();
  }

  ComputeMode read_compute_mode(Device device) const {
    int mode = 0;
    if (compute_mode == nullptr || compute_mode(device, &mode) != kSuccess) {
      return ComputeMode::kShared;
    }
    return mode == kProhibited         ? ComputeMode::kNobody
           : mode == kExclusiveProcess ? ComputeMode::kOneProcess
                                       : ComputeMode::kShared;
  }

  // The first part of a divided card (MIG); nullopt for a card that is not
  // divided.
  std::optional<Device> first_part(Device device) const {
    unsigned current = 0, pending = 0, most = 0;
    if (mig_mode == nullptr || most_parts == nullptr || part == nullptr ||
        mig_mode(device, &current, &pending) != kSuccess || current == 0 ||
        most_parts(device, &most) != kSuccess) {
      return std::nullopt;
    }
    for (unsigned i = 0; i < most; ++i) {
      Device found = nullptr;
      if (part(device, i, &found) == kSuccess) return found;
    }
    return std::nullopt;
  }

  // Returns no value if the card does not report its memory.
  std::optional<Card> read_card(Device device) const {
    Card card;
    if (!read_memory(device, card)) return std::nullopt;
    std::array<char, 128> text = {};
    if (uuid(device, text.data(), text.size()) == kSuccess) {
      card.uuid = text.data();
    }
    text = {};
    if (name(device, text.data(), text.size()) == kSuccess) {
      card.name = text.data();
    }
    int major = 0, minor = 0;
    if (capability != nullptr &&
        capability(device, &major, &minor) == kSuccess) {
      card.compute_capability = 10 * major + minor;
    }
    card.processes = read_processes(device);
    card.bus_address = read_bus_address(device);
    card.compute_mode = read_compute_mode(device);
    return card;
  }
};

CudaEnvironment CudaEnvironment::of_this_process() {
  const auto value = [](const char* name) -> std::optional<std::string> {
    const char* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    return text;
  };
  return {value("CUDA_VISIBLE_DEVICES"), value("CUDA_DEVICE_ORDER")};
}

Nvml::Nvml(const std::string& library, const CudaEnvironment& environment)
    : environment_(environment) {
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
  loaded->find(loaded->by_uuid, "nvmlDeviceGetHandleByUUID");
  loaded->find(loaded->capability, "nvmlDeviceGetCudaComputeCapability");
  loaded->find(loaded->memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  loaded->find(loaded->memory, "nvmlDeviceGetMemoryInfo");
  loaded->find(loaded->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  loaded->find(loaded->pci, "nvmlDeviceGetPciInfo_v3");
  loaded->find(loaded->compute_mode, "nvmlDeviceGetComputeMode");
  loaded->find(loaded->mig_mode, "nvmlDeviceGetMigMode");
  loaded->find(loaded->most_parts, "nvmlDeviceGetMaxMigDeviceCount");
  loaded->find(loaded->part, "nvmlDeviceGetMigDeviceHandleByIndex");
  loaded->find(loaded->whole_of_part,
               "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  if (const int status = loaded->init(); status != kSuccess) {
    reason_ = "the NVIDIA driver does not answer: " +
              std::string(loaded->error_string(status));
    return;
  }
  loaded->initialised = true;
  library_ = std::move(loaded);
  if (all_cards().empty()) {
    reason_ = "the NVIDIA driver has no card";
  } else if (cards().empty()) {
    reason_ = "CUDA_VISIBLE_DEVICES=" + environment_.visible_devices.value() +
              " hides every card";
  }
}

std::vector<Card> Nvml::all_cards() const {
  std::vector<Card> cards;
  unsigned count = 0;
  if (library_ == nullptr || library_->count(&count) != kSuccess) return cards;
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    // A card that has fallen off the bus keeps its index, but cannot be opened.
    if (library_->by_index(index, &device) != kSuccess) continue;
    std::optional<Card> card = library_->read_card(device);
    if (!card) continue;
    card->index = static_cast<int>(cards.size());
    card->nvidia_smi = static_cast<int>(index);
    cards.push_back(*std::move(card));
  }
  return cards;
}

std::optional<Card> Nvml::card_of(const std::string& uuid) const {
  for (Card& card : all_cards()) {
    if (card.uuid == uuid) return std::move(card);
  }
  Device device = nullptr;
  if (library_ == nullptr || library_->by_uuid == nullptr ||
      library_->by_uuid(uuid.c_str(), &device) != kSuccess) {
    return std::nullopt;
  }
  std::optional<Card> part = library_->read_card(device);
  if (part) part->uuid = uuid;
  return part;
}

namespace {

// Returns the card that an entry of CUDA_VISIBLE_DEVICES selects, or nullptr.
const Card* named_card(const std::vector<Card>& all, const std::string& word) {
  if (word.starts_with("GPU-")) {
    const auto begins = [&](const Card& card) {
      return card.uuid.starts_with(word);
    };
    const auto found = std::ranges::find_if(all, begins);
    const bool is_one = std::ranges::count_if(all, begins) == 1;
    return is_one ? &*found : nullptr;
  }
  const auto number = parse_whole(word, 0, std::ssize(all) - 1);
  return number ? &all[static_cast<size_t>(*number)] : nullptr;
}

}  // namespace

// If a card is divided, CUDA shows a process only one part, and no whole card.
std::vector<Card> Nvml::with_first_part(std::vector<Card> shown) const {
  for (const Card& card : shown) {
    if (card.uuid.starts_with("MIG-")) {
      Card part = card;
      part.index = 0;
      return {part};
    }
    std::optional<Card> part = first_part_of(card);
    if (!part) continue;
    part->index = 0;
    return {*std::move(part)};
  }
  return shown;
}

std::optional<Card> Nvml::first_part_of(const Card& card) const {
  Device whole = nullptr;
  if (card.nvidia_smi < 0 ||
      library_->by_index(static_cast<unsigned>(card.nvidia_smi), &whole) !=
          kSuccess) {
    return std::nullopt;
  }
  const std::optional<Device> part = library_->first_part(whole);
  return part ? library_->read_card(*part) : std::nullopt;
}

std::vector<Card> Nvml::cards() const {
  const std::vector<Card> all = all_cards();
  if (!environment_.visible_devices) return with_first_part(all);
  std::vector<Card> shown;
  std::istringstream words(*environment_.visible_devices);
  for (std::string word; std::getline(words, word, ',');) {
    std::erase(word, ' ');
    std::optional<Card> card;
    if (word.starts_with("MIG-")) {
      card = card_of(word);
    } else if (const Card* const named = named_card(all, word)) {
      card = *named;
    }
    if (!card) break;
    // CUDA shows no card at all if one is listed twice.
    if (std::ranges::any_of(shown, [&](const Card& other) {
          return other.uuid == card->uuid;
        })) {
      return {};
    }
    card->index = static_cast<int>(shown.size());
    shown.push_back(*std::move(card));
  }
  return with_first_part(std::move(shown));
}

namespace {

[[noreturn]] void refuse(const std::string& device, const std::string& what,
                         const std::string& remedy) {
  throw Error("device", "--device " + device + ": " + what, remedy);
}

std::string hidden_text(const CudaEnvironment& environment) {
  if (!environment.visible_devices) return "";
  return "; CUDA_VISIBLE_DEVICES=" + *environment.visible_devices +
         " decides which are shown";
}

std::string cards_text(const std::vector<Card>& cards) {
  return joined(cards, ", ", [](const Card& card) {
    return cat(card.index, " (", card.name, ")");
  });
}

}  // namespace

int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes) {
  int64_t own = 0;
  bool is_listed = false;
  for (const CardProcess& process : card.processes) {
    if (std::ranges::find(own_pids, process.pid) == own_pids.end()) continue;
    // A process without reported bytes cannot be subtracted.
    if (!process.used_bytes) continue;
    own += *process.used_bytes;
    is_listed = true;
  }
  return std::max<int64_t>(0,
                           card.used_bytes() - (is_listed ? own : own_bytes));
}

std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml) {
  const std::vector<Card> present = nvml.cards();
  const auto& order = nvml.environment().device_order;
  if (order && *order != "PCI_BUS_ID") {
    refuse(device,
           "CUDA_DEVICE_ORDER=" + *order +
               " numbers cards otherwise than nvidia-smi does",
           "leave it out, or set it to PCI_BUS_ID");
  }
  std::vector<Card> asked;
  for (const int index : parse_device_list(device)) {
    const auto card = std::ranges::find_if(
        present, [&](const Card& one) { return one.index == index; });
    if (card == present.end()) {
      refuse(device,
             present.empty()
                 ? nvml.reason()
                 : cat("there is no card ", index, "; here is ",
                       cards_text(present), hidden_text(nvml.environment())),
             present.empty() ? "use --device cpu" : "name one of these");
    }
    asked.push_back(*card);
  }
  return asked;
}

namespace {

// " (process 4001: 12 GiB, process 4002)"; "" if the driver lists no process.
std::string users_text(const Card& card) {
  if (card.processes.empty()) return "";
  return " (" +
         joined(card.processes, ", ",
                [](const CardProcess& process) {
                  return cat("process ", process.pid,
                             process.used_bytes
                                 ? ": " + format_bytes(*process.used_bytes)
                                 : "");
                }) +
         ")";
}

}  // namespace

std::string card_text(const Card& card, int64_t others_bytes) {
  const bool is_other = card.nvidia_smi >= 0 && card.nvidia_smi != card.index;
  return cat("card ", card.index,
             is_other ? cat(" (nvidia-smi's ", card.nvidia_smi, ")") : "", ": ",
             card.name, ", ", format_bytes(card.total_bytes),
             others_bytes > 0 ? ", others use " + format_bytes(others_bytes) +
                                    " of it" + users_text(card)
                              : ", nobody else uses it");
}

std::string trouble_of(const Card& card) {
  const std::string name = cat("card ", card.index, " (", card.name, ") ");
  const std::string mode =
      cat("sudo nvidia-smi -i ",
          card.nvidia_smi >= 0 ? card.nvidia_smi : card.index, " -c DEFAULT");
  if (card.compute_mode == ComputeMode::kNobody) {
    return name +
           "is in prohibited mode, in which no process computes: " + mode +
           ", or name other cards with --device";
  }
  if (card.compute_mode != ComputeMode::kOneProcess || card.processes.empty()) {
    return "";
  }
  return name + "is in exclusive mode, and others use " +
         format_bytes(card.used_bytes()) + " of its " +
         format_bytes(card.total_bytes) + users_text(card) +
         ": end that process, or " + mode +
         ", or name other cards with "
         "--device";
}

}  // namespace headroom::nvml
