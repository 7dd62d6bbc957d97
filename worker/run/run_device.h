// The device of a training process: which one it is, how much memory the
// process may take there, and what is reported of that in the event
// "device_memory" and in summary.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "parallel/predict/memory_model.h"
#include "worker/memory/device_footprint.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/card_fault.h"

namespace headroom::run {

struct ChosenDevice {
  devices::ComputeDevice device;
  memory::DeviceFootprint footprint;  // its context's; empty for the CPU
  Card card;                          // empty for the CPU
};

// The device on which this rank computes. Loads the plugin for devices, makes
// its kernels known to the model and the loss, sets the arithmetic that the run
// asks for, and creates the device's context. The main thread calls it once,
// before LibTorch is first used (compute_device.h). Throws Error (exit 2) that
// says why there is no such device, and CardUnusable where it is one that the
// run had before.
ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks, const CardRecord& record = {});

// What is taken of a device at one moment.
class DeviceMemorySample {
 public:
  // REQUIRES: not the CPU.
  explicit DeviceMemorySample(const devices::ComputeDevice& device);
  // Bytes that this process has taken since, beside its segments; nothing where
  // the driver does not tell.
  std::optional<int64_t> taken_since() const;

 private:
  devices::ComputeDevice device_;
  std::optional<devices::DeviceUse> use_;
  int64_t segments_ = 0;
};

// One rank's bytes on its device.
struct DeviceMemoryLine {
  memory::DeviceFootprint footprint;
  int64_t workspace = 0;  // the largest of a convolution so far, in segments
  int64_t tensors = 0;    // the most of a step as it was planned
  int64_t segments = 0;   // segments of those tensors
  int64_t room = 0;       // bytes that the process may take

  int64_t needed() const { return footprint.total() + segments; }
};

// Collective; the same on every rank.
std::vector<DeviceMemoryLine> gather_device_memory(
    collectives::Communicator& world, const DeviceMemoryLine& line);

bool any_lacks_room(const std::vector<DeviceMemoryLine>& ranks);

// The rank with the least room left. REQUIRES: a rank.
int fullest_rank(const std::vector<DeviceMemoryLine>& ranks);

// Describes the fullest rank. REQUIRES: a rank.
memory::StepEvent device_memory_event(
    const std::vector<DeviceMemoryLine>& ranks);

// An array with an object per rank.
nlohmann::ordered_json device_memory_json(
    const std::vector<DeviceMemoryLine>& ranks);

// DeviceBudget: what a process may take of its device while it trains. On a
// device, --memory-limit is for everything that the process has there, so the
// limit of the allocator falls as the footprint grows.
class DeviceBudget {
 public:
  struct Inputs {
    const devices::ComputeDevice& device;
    memory::DeviceFootprint& footprint;  // this process's part of it
    const predict::MemoryRequest& request;
    int64_t memory_limit = 0;  // --memory-limit; 0: none
    int rank = 0, world_size = 1;
  };
  // Has to be made before anything is allocated. Throws Error (exit 3) where
  // one process alone cannot fit; several may find a plan that splits more.
  explicit DeviceBudget(const Inputs& inputs);

  const devices::ComputeDevice& device() const { return inputs_.device; }
  // All of the ranks' communicators are connected, and no step has run.
  void count_connections();
  // A first step loads libraries' kernels. True the first time, on a device.
  bool count_first_step();
  // REQUIRES: not the CPU.
  DeviceMemoryLine line() const;

 private:
  memory::DeviceRoom room() const;
  void find_segments();
  void set_limit();

  const Inputs inputs_;
  memory::StepSegments segments_;  // a step's segments
  // A sample since the ranks were connected, until a first step has run.
  std::optional<DeviceMemorySample> before_steps_;
};

}  // namespace headroom::run
