// The device of a training process: its choice, how much of its memory the
// process may use, and its report in "device_memory" and summary.json.
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
  memory::DeviceFootprint footprint;  // the context's memory; empty for the CPU
  Card card;                          // empty for the CPU
};

// The card that the coordinator assigned to this process; index -1 means that
// the card follows from the local rank.
struct AssignedCard {
  int index = -1;
  std::string uuid = {};  // the UUID that the agent saw; "" if unknown
};

// Why the card is missing; "" if it is present. The driver renumbers cards when
// one fails on the bus. `count`: the number of cards now. `found_uuid`: the
// UUID of the card that now has the index card.index; "" if there is none.
std::string vanished_card_error(const AssignedCard& card, int count,
                                const std::string& found_uuid);

// Chooses the device of this rank. Loads the plugin for devices, gives its
// kernels to the model and the loss, sets the run's arithmetic, and creates the
// device's context. The main thread calls it once, before LibTorch is first
// used (compute_device.h). If there is no such device, throws CardUnusable if
// it was listed when the run began, otherwise Error (exit 2) with the reason.
ChosenDevice choose_device(const configs::RunConfig& config, int local_rank,
                           int local_ranks, const AssignedCard& card = {},
                           CardRecord record = {});

// The used memory of a device at one moment.
class DeviceMemorySample {
 public:
  // REQUIRES: a device that is not the CPU.
  explicit DeviceMemorySample(const devices::ComputeDevice& device);
  // Bytes of the device that this process has taken since the sample, without
  // the segments of its allocator; nullopt if the driver does not report them.
  std::optional<int64_t> taken_since() const;

 private:
  devices::ComputeDevice device_;
  std::optional<devices::DeviceUse> use_;
  int64_t segments_ = 0;
};

// One rank's bytes on its device.
struct DeviceMemoryLine {
  memory::DeviceFootprint footprint;
  int64_t workspace = 0;  // largest convolution workspace, part of `segments`
  int64_t tensors = 0;    // predicted peak of the tensors in a planned step
  int64_t segments = 0;   // bytes of the segments for these tensors
  int64_t room = 0;       // bytes that the process may take

  int64_t needed() const { return footprint.total() + segments; }
};

// Returns all ranks' lines on every rank. Collective.
std::vector<DeviceMemoryLine> gather_device_memory(
    collectives::Communicator& world, const DeviceMemoryLine& line);

bool any_lacks_room(const std::vector<DeviceMemoryLine>& ranks);

// The rank with the least room left. REQUIRES: `ranks` is not empty.
int fullest_rank(const std::vector<DeviceMemoryLine>& ranks);

// Describes the fullest rank. REQUIRES: `ranks` is not empty.
memory::StepEvent device_memory_event(
    const std::vector<DeviceMemoryLine>& ranks);

// Returns an array with one object per rank.
nlohmann::ordered_json device_memory_json(
    const std::vector<DeviceMemoryLine>& ranks);

// DeviceBudget: how much of its device's memory a process may use while it
// trains. --memory-limit covers all memory of the process on the device, so the
// allocator's limit falls as the footprint grows.
class DeviceBudget {
 public:
  // REQUIRES: no tensor is allocated yet. `footprint`: the memory of this
  // process on the device without tensors. Throws Error (exit 3) if a run of
  // one process does not fit. With several processes it does not throw, because
  // another plan may still fit.
  DeviceBudget(const RunContext& run, memory::DeviceFootprint& footprint);

  // Counts the memory of the connections. Called when all communicators are
  // connected, and before the first step.
  void count_connections();
  // Counts the memory of the first step, in which libraries load kernels.
  // Returns true the first time, on a device.
  bool count_first_step();
  // REQUIRES: a device that is not the CPU.
  DeviceMemoryLine line() const;

 private:
  memory::DeviceRoom room() const;
  void find_segments();
  void set_limit();

  const RunContext& run_;
  memory::DeviceFootprint& footprint_;
  memory::StepSegments segments_;  // segments that a step needs
  // Sampled before the ranks connect, and again when they are connected; empty
  // after the first step.
  std::optional<DeviceMemorySample> before_steps_;
};

}  // namespace headroom::run
