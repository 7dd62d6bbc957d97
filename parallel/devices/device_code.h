// DeviceCode: for which cards a plugin carries code of its own. Pure.
//
// A kernel is compiled to machine code of a compute capability, which later
// minor versions of the same major one run too, or to PTX, which the driver
// compiles for any later card. Compute capability 9.0 is written 90.
#pragma once

#include <string>
#include <vector>

namespace headroom::devices {

struct DeviceCode {
  std::vector<int> machine_code;  // ascending
  std::vector<int> ptx;           // ascending
  bool operator==(const DeviceCode&) const = default;
};

// Reads CMake's CUDA_ARCHITECTURES: "80-real,90": machine code for both, PTX
// for the second; "90-virtual": PTX alone. Throws Error for other words.
DeviceCode parse_architectures(const std::string& architectures);

bool runs_on(const DeviceCode& code, int compute_capability);

// Why a card cannot be used: "NVIDIA T4 has compute capability 7.5, but …";
// empty where it can, and for a device without code of its own.
std::string card_error(const DeviceCode& code, const std::string& card,
                       int compute_capability);

}  // namespace headroom::devices
