// device_memory_report: each rank's bytes on its device, beside the segments
// that its steps are predicted to need: the event "device_memory" and
// summary.json.
//
// Threads: pure functions, but for DeviceMemorySample and room_now, which ask
// the device, and the gathering, which is collective.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "worker/memory/device_footprint.h"
#include "worker/memory/memory_ladder.h"

namespace headroom::run {

// One moment of a device.
class DeviceMemorySample {
 public:
  // REQUIRES: not the CPU.
  explicit DeviceMemorySample(const devices::ComputeDevice& device);
  // By this process, beside its segments; nothing where the driver does not
  // tell.
  std::optional<int64_t> taken_since() const;

 private:
  devices::ComputeDevice device_;
  std::optional<devices::DeviceUse> use_;
  int64_t segments_ = 0;
};

// `footprint`: of this process. REQUIRES: not the CPU.
memory::DeviceRoom room_now(const devices::ComputeDevice& device,
                            int64_t memory_limit,
                            const memory::DeviceFootprint& footprint);

struct DeviceMemoryLine {
  memory::DeviceFootprint footprint;
  int64_t workspace = 0;  // of a convolution, the most so far; in segments
  int64_t tensors = 0;    // of a step as it was planned, at most
  int64_t segments = 0;   // that they are cut from
  int64_t room = 0;

  int64_t needed() const { return footprint.total() + segments; }
};

// Collective; the same on every rank.
std::vector<DeviceMemoryLine> gather_device_memory(
    collectives::Communicator& world, const DeviceMemoryLine& line);

bool any_lacks_room(const std::vector<DeviceMemoryLine>& ranks);

// That has least room left. REQUIRES: a rank.
int fullest_rank(const std::vector<DeviceMemoryLine>& ranks);

// Of that rank. REQUIRES: a rank.
memory::StepEvent device_memory_event(
    const std::vector<DeviceMemoryLine>& ranks);

// An array, an object per rank.
std::string to_json(const std::vector<DeviceMemoryLine>& ranks);

}  // namespace headroom::run
