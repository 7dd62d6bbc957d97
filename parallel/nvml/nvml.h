// Nvml: the driver's information about the cards, without CUDA and without
// creating a context.
//
// libnvidia-ml.so.1 is installed with the driver and loaded at run time, so
// that the launcher and the coordinator, which do not link LibTorch, can use
// it. Without the library there is no card. Copies of Nvml share the library;
// any thread may use it. A value that a card does not report (some do not
// report the memory of processes) is left out of its Card.
//
// CUDA shows a process the cards in CUDA_VISIBLE_DEVICES and numbers them from
// 0; NVML numbers all cards of the machine. A Card has CUDA's number, which
// --device and workers use, and also NVML's number. Both follow the order of
// the PCI bus; workers set CUDA to this order (compute_device.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headroom::nvml {

// A process that computes on a card.
struct CardProcess {
  int64_t pid = 0;  // the driver's process number, not a container's
  // No value if the driver does not report it.
  std::optional<int64_t> used_bytes;
};

// How many processes may compute on a card (nvidia-smi -c).
enum class ComputeMode { kShared, kOneProcess, kNobody };

struct Card {
  int index = 0;        // CUDA's number, for a process with this environment
  int nvidia_smi = -1;  // nvidia-smi's number; -1 for a part of a card (MIG)
  std::string uuid;     // "GPU-f2b1c3…" or "MIG-…"
  // PCI address as in /sys/bus/pci/devices, "0000:3b:00.0"; a MIG part has the
  // address of its whole card. "" if the driver does not report it.
  std::string bus_address;
  std::string name;
  int compute_capability = 0;  // 90 for 9.0; 0 if not reported
  int64_t total_bytes = 0;     // memory of the card
  int64_t reserved_bytes = 0;  // reserved by the driver
  int64_t free_bytes = 0;
  std::vector<CardProcess> processes;
  ComputeMode compute_mode = ComputeMode::kShared;

  // Bytes in use by all processes, including this process.
  int64_t used_bytes() const {
    return total_bytes - reserved_bytes - free_bytes;
  }
};

// The environment variables that decide which cards CUDA shows, and in which
// order. No value if a variable is not set.
struct CudaEnvironment {
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  std::optional<std::string> device_order;     // CUDA_DEVICE_ORDER

  static CudaEnvironment of_this_process();
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // `library`: a file, or a name that the loader finds; tests pass their own.
  explicit Nvml(
      const std::string& library = kLibrary,
      const CudaEnvironment& environment = CudaEnvironment::of_this_process());

  // The cards that CUDA shows; cards()[i] has number i. Empty, with a reason(),
  // if there is no driver or no card. Like CUDA, reads CUDA_VISIBLE_DEVICES up
  // to the first entry that matches no card; entries are numbers, UUIDs or
  // their prefixes, or MIG parts. If a shown card is divided (MIG), CUDA shows
  // a single part: the named one, or else the first.
  std::vector<Card> cards() const;
  // The card or MIG part with that full UUID, even if CUDA does not show it;
  // nullopt if there is none.
  std::optional<Card> card_of(const std::string& uuid) const;
  const std::string& reason() const { return reason_; }
  const CudaEnvironment& environment() const { return environment_; }

 private:
  struct Library;
  std::vector<Card> all_cards() const;
  std::vector<Card> with_first_part(std::vector<Card> shown) const;
  std::optional<Card> first_part_of(const Card& card) const;

  CudaEnvironment environment_;
  std::shared_ptr<const Library> library_;
  std::string reason_;
};

// Memory of a card in use by other programs, computed from NVML's figures.

// Bytes of `card` that are neither free, nor reserved by the driver, nor used
// by the processes `own_pids`. In a container the driver's process numbers
// differ and none matches; then `own_bytes`, the bytes that the processes
// `own_pids` report (0 before they start), is subtracted instead.
int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes);

// The cards of --device: "0", "0,2", "cuda", "cuda:1". Throws Error (exit 2)
// for other text, for a repeated card, for a missing card (listing the existing
// ones), and for a CUDA_DEVICE_ORDER that would number cards differently.
std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml);

// "card 0: NVIDIA H200, 139 GiB, others use 21 GiB of it (process 4001: 20
// GiB)"; "card 0 (nvidia-smi's 2)" if nvidia-smi's number differs.
std::string card_text(const Card& card, int64_t others_bytes);

// Why no process may start to compute on the card, and what to do: "card 0 is
// in exclusive mode, and process 4001 computes on it: …". "" if a process may.
std::string trouble_of(const Card& card);

}  // namespace headroom::nvml
