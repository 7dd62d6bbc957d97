// Card: one GPU as its driver describes it. CardFault: why a card cannot be
// used.
#pragma once

#include <string>

namespace headroom {

struct Card {
  std::string uuid;         // "GPU-f2b1c3…"; "" if unknown
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string bus_address;  // on the PCI bus: "0000:1b:00.0"
  bool operator==(const Card&) const = default;
};

// "NVIDIA H100 80GB HBM3 (GPU-f2b1c3…, 0000:1b:00.0)".
std::string to_string(const Card& card);

// The exit code of a worker whose card cannot be used: the run loses that
// worker, and the agent starts another worker if the card may be tried again.
inline constexpr int kCardExitCode = 6;

// Why a worker cannot start or continue on its card.
struct CardFault {
  enum class Kind {
    kFailed,   // the driver reports an error that only a new process clears
    kGone,     // the driver no longer lists the card
    kLeftOut,  // the run no longer starts workers on it
    kWrong,    // it computes other bits than its peers
  };
  Kind kind = Kind::kFailed;
  Card card;
  std::string words;  // the reason; for kFailed the driver's message
};

}  // namespace headroom
