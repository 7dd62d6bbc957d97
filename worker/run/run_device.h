// The device of a training process: its choice, the memory that the process may
// take there, and its report in the event "device_memory" and in summary.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/devices/compute_device.h"
#include "worker/memory/device_footprint.h"
#include "worker/memory/memory_ladder.h"
#include "worker/run/card_fault.h"

namespace headroom::run {

struct RunContext;

struct ChosenDevice {
  devices::ComputeDevice device;
  memory::DeviceFootprint footprint;  // its context's; empty for the CPU
  Card card;                          // empty for the CPU
};

// The card that the coordinator chose for this process; without a number the
// card follows from the local rank.
struct AssignedCard {
  int index = -1;
  std::string uuid = {};  // what its agent found under that number; "": unknown
};

// Why the card has disappeared, "" if it is there. The driver numbers cards
// anew when one fails on the bus. `found_uuid`: of the card that has this
// number now, among `count`; "" if there is none.
std::string vanished_card_error(const AssignedCard& card, int count,
                                const std::string& found_uuid);

// The device on which this rank computes. Loads the plugin for devices, gives
// its kernels to the model and the loss, sets the arithmetic that the run asks
// for, and creates the device's context. The main thread calls it once, before
// LibTorch is first used (compute_device.h). Throws Error (exit 2) with the
// reason if there is no such device, and CardUnusable if the run had it before.
ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks, const AssignedCard& card = {},
                           CardRecord record = {});

// The memory that is taken of a device at one moment.
class DeviceMemorySample {
 public:
  // REQUIRES: not the CPU.
  explicit DeviceMemorySample(const devices::ComputeDevice& device);
  // Bytes that this process has taken since, without its segments; nothing if
  // the driver does not report it.
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

// DeviceBudget: the memory that a process may take of its device while it
// trains. --memory-limit covers everything that the process has on a device, so
// the allocator's limit falls as the footprint grows.
class DeviceBudget {
 public:
  // Made before anything is allocated. `footprint`: this process's part of the
  // device. Throws Error (exit 3) if one process alone cannot fit; several may
  // find a plan that splits more.
  DeviceBudget(const RunContext& run, memory::DeviceFootprint& footprint);

  // Counts what the connections took. Called when all communicators are
  // connected, and before the first step.
  void count_connections();
  // Counts what the first step took: libraries load their kernels in it.
  // Returns true the first time, on a device.
  bool count_first_step();
  // REQUIRES: not the CPU.
  DeviceMemoryLine line() const;

 private:
  memory::DeviceRoom room() const;
  void find_segments();
  void set_limit();

  const RunContext& run_;
  memory::DeviceFootprint& footprint_;
  memory::StepSegments segments_;  // a step's segments
  // A sample since the ranks were connected, until a first step has run.
  std::optional<DeviceMemorySample> before_steps_;
};

}  // namespace headroom::run
