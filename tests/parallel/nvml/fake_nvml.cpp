// A replacement for the driver's library, with two usable cards, for tests:
//   0  80 GiB, 1 GiB reserved, 20 GiB in use: 12 by process 4001, 7 by 4002
//   1  24 GiB, older: no reserved bytes, 1 GiB in use, processes' bytes unknown
// Three cards are listed, but that with index 1 has fallen off the bus, so
// CUDA's numbers of the others are 0 and 1. A part of 10 GiB of the first card
// can be named by its UUID. fake_nvml_broken cannot start. FAKE_NVML_MODE sets
// the compute mode of the first card; if FAKE_NVML_MIG is set, the first card
// is divided.
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned long long kGiB = 1ull << 30;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kNotSupported = 3;

struct Card {
  const char* uuid;
  const char* name;
};
Card cards[4] = {
    {"GPU-00000000-0000-0000-0000-000000000000", "Fake H80"},
    {"", ""},
    {"GPU-22222222-2222-2222-2222-222222222222", "Fake A24"},
    {"MIG-33333333-3333-3333-3333-333333333333", "Fake H80 MIG 1g.10gb"}};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Memory {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

int copy(char* to, unsigned size, const char* text) {
  if (std::strlen(text) >= size) return kInsufficientSize;
  std::strcpy(to, text);
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
#ifdef HEADROOM_FAKE_NVML_BROKEN
  return 9;
#else
  return 0;
#endif
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1) return kNotFound;
  *device = &cards[index];
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (Card& card : cards) {
    if (*card.uuid == '\0' || std::strcmp(card.uuid, uuid) != 0) continue;
    *device = &card;
    return 0;
  }
  return kNotFound;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return copy(text, size, static_cast<Card*>(device)->uuid);
}
int nvmlDeviceGetName(void* device, char* text, unsigned size) {
  return copy(text, size, static_cast<Card*>(device)->name);
}
// The older card does not report its compute capability.
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (device != &cards[0]) return kNotSupported;
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  // Only the whole card has an address.
  if (device == &cards[3]) return kNotSupported;
  info->domain = 0;
  info->bus = device == &cards[0] ? 0x3b : 0xaf;
  info->device = 0;
  return 0;
}
int nvmlDeviceGetComputeMode(void* device, int* mode) {
  const char* const text = std::getenv("FAKE_NVML_MODE");
  *mode = device == &cards[0] && text != nullptr ? std::atoi(text) : 0;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  if (device != &cards[0]) return kNotSupported;
  *current = *pending = std::getenv("FAKE_NVML_MIG") != nullptr ? 1 : 0;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** part) {
  if (index != 2) return kNotFound;
  *part = &cards[3];
  return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* part, void** whole) {
  if (part != &cards[3]) return kNotSupported;
  *whole = &cards[0];
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (device != &cards[0]) return kNotSupported;
  if (memory->version != (40u | 2u << 24)) return kNotSupported;
  *memory = {memory->version, 80 * kGiB, kGiB, 59 * kGiB, 20 * kGiB};
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (device == &cards[3]) {
    *memory = {10 * kGiB, 10 * kGiB, 0};
    return 0;
  }
  *memory = {24 * kGiB, 23 * kGiB, kGiB};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* size,
                                            ProcessInfo* infos) {
  if (device == &cards[0]) {
    // The list is longer than a caller expects at first.
    if (*size < 40) return kInsufficientSize;
    infos[0] = {4001, 12 * kGiB, 0, 0};
    infos[1] = {4002, 7 * kGiB, 0, 0};
    *size = 2;
    return 0;
  }
  infos[0] = {4003, ~0ull, 0, 0};
  *size = 1;
  return 0;
}
}
