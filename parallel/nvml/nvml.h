// Nvml: what NVIDIA's driver tells about the cards, without CUDA and without
// creating a context on any of them.
//
// libnvidia-ml.so.1 comes with the driver and is loaded at run time, so that
// the launcher and the coordinator, which have no LibTorch, can ask too. Where
// it is missing there is no card. Copies share the library; any thread may ask.
// What one card does not answer (some do not tell processes' memory) is left
// out of its Card.
//
// CUDA shows a process the cards that CUDA_VISIBLE_DEVICES names, and numbers
// them anew; NVML numbers all of the machine's. Here a card has CUDA's number,
// which --device and the worker mean too, and NVML's beside it. Both count in
// the order of the PCI bus, which workers ask CUDA for (compute_device.h).
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
  int64_t pid = 0;  // The driver's number of the process, not a container's.
  // Nothing where the driver does not tell.
  std::optional<int64_t> used_bytes;
};

// Who may compute on a card (nvidia-smi -c).
enum class ComputeMode { kShared, kOneProcess, kNobody };

struct Card {
  int index = 0;        // CUDA's number in a process of this environment
  int nvidia_smi = -1;  // nvidia-smi's number; -1 for a part of a card (MIG)
  std::string uuid;     // "GPU-f2b1c3…" or "MIG-…"
  // Where the card is on the PCI bus, as /sys/bus/pci/devices names it:
  // "0000:3b:00.0"; that of the whole card for a part of one. "" if the driver
  // does not tell.
  std::string bus_address;
  std::string name;
  int compute_capability = 0;  // 9.0 as 90; 0: the driver does not tell
  int64_t total_bytes = 0;     // the card's memory
  int64_t reserved_bytes = 0;  // the driver's own part of these
  int64_t free_bytes = 0;
  std::vector<CardProcess> processes;
  ComputeMode compute_mode = ComputeMode::kShared;

  // Bytes that all processes use, this one included.
  int64_t used_bytes() const {
    return total_bytes - reserved_bytes - free_bytes;
  }
};

// What decides which cards CUDA shows, and in which order; a variable that is
// not set is nothing.
struct CudaEnvironment {
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  std::optional<std::string> device_order;     // CUDA_DEVICE_ORDER

  static CudaEnvironment of_this_process();
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // `library` is a file or a name that the loader looks up; tests name their
  // own.
  explicit Nvml(
      const std::string& library = kLibrary,
      const CudaEnvironment& environment = CudaEnvironment::of_this_process());

  // Those that CUDA shows, the i-th with number i. Empty, with a reason, where
  // there is no driver or no card. As CUDA, it reads CUDA_VISIBLE_DEVICES up to
  // the first word that names no card: numbers, UUIDs or their beginnings,
  // parts of cards (MIG). Where a card is divided, CUDA shows one part alone:
  // the one that is named, or the first.
  std::vector<Card> cards() const;
  // Whichever is shown: the card or part of a card of that whole UUID. Nothing
  // where there is none.
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

// How much of a card others use, from what NVML said.

// Bytes of `card` that are not this run's: neither free, nor the driver's, nor
// of the processes `own_pids`. In a container the driver's process numbers are
// not ours, and none matches: then `own_bytes`, what these processes know to
// hold, is subtracted instead (0 before they start).
int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes);

// The devices of --device: "0", "0,2", "cuda", "cuda:1". Throws Error (exit 2)
// for other words, for a card twice, for one that is not there, saying what is,
// and for a CUDA_DEVICE_ORDER that would give cards other numbers.
std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml);

// "card 0: NVIDIA H200, 139 GiB, others use 21 GiB of it (process 4001: 20
// GiB)"; "card 0 (nvidia-smi's 2)" where the two count differently.
std::string card_text(const Card& card, int64_t others_bytes);

// Why no process may begin to compute on the card, and what to do: "card 0 is
// in exclusive mode, and process 4001 computes on it: …"; "" if one may.
std::string trouble_of(const Card& card);

}  // namespace headroom::nvml
