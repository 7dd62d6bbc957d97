// DeviceCode: the compute capabilities for which a plugin contains code.
//
// A kernel is compiled to machine code for one compute capability, which also
// runs on later minor versions of the same major version, or to PTX, which the
// driver compiles for any later card. Compute capability 9.0 is written 90.
#pragma once

#include <string>
#include <vector>

namespace headroom::devices {

struct DeviceCode {
  std::vector<int> machine_code;  // ascending
  std::vector<int> ptx;           // ascending
  bool operator==(const DeviceCode&) const = default;
};

// Parses CMake's CUDA_ARCHITECTURES. "80-real,90" is machine code for both and
// PTX for 90; "90-virtual" is PTX only. Throws Error for other text.
DeviceCode parse_architectures(const std::string& architectures);

bool runs_on(const DeviceCode& code, int compute_capability);

// Returns the reason why a card cannot be used ("NVIDIA T4 has compute
// capability 7.5, but …"), or "" if it can be used or `code` is empty.
std::string card_error(const DeviceCode& code, const std::string& card,
                       int compute_capability);

}  // namespace headroom::devices
