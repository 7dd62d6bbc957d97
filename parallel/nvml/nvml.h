// Nvml: what NVIDIA's driver tells about the cards, without CUDA and without
// creating a context on any of them.
//
// libnvidia-ml.so.1 comes with the driver and is loaded at run time, so that
// the launcher and the coordinator, which have no LibTorch, can ask too. Where
// it is missing there is no card. Copies share the library; any thread may ask.
// Nothing throws: what one card does not answer (some do not tell processes'
// memory) is left out of its Card.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace headroom::nvml {

// A process that computes on a card.
struct CardProcess {
  int64_t pid = 0;  // of the driver's process namespace, not of a container's
  // Nothing where the driver does not tell.
  std::optional<int64_t> used_bytes;
};

struct Card {
  int index = 0;     // as nvidia-smi counts
  std::string uuid;  // "GPU-f2b1c3…"
  std::string name;
  int64_t total_bytes = 0;     // of the card
  int64_t reserved_bytes = 0;  // the driver's own part of these
  int64_t free_bytes = 0;
  std::vector<CardProcess> processes;

  // By everyone, this process included.
  int64_t used_bytes() const {
    return total_bytes - reserved_bytes - free_bytes;
  }
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // `library` is a file or a name that the loader looks up; tests name their
  // own.
  explicit Nvml(const std::string& library = kLibrary);

  // Empty, with a reason, where there is no driver or no card.
  std::vector<Card> cards() const;
  const std::string& reason() const { return reason_; }

 private:
  struct Library;
  std::shared_ptr<const Library> library_;
  std::string reason_;
};

}  // namespace headroom::nvml
