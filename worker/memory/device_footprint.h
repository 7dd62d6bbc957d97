// DeviceFootprint: the memory that a process uses on its device in addition to
// the segments from which its tensors are allocated, and the check that both
// fit.
//
//   context         memory and code of the driver, from the first call on
//   communication   the connected communicators of this generation's ranks
//   libraries       kernels that are loaded during the first step
//
// Each of the three is the difference between two samples of the device
// (bytes_taken). The card, or --memory-limit, must have room for the three and
// for the segments of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "parallel/devices/device_api.h"
#include "parallel/predict/memory_model.h"

namespace headroom::memory {

struct DeviceFootprint {
  int64_t context = 0;
  int64_t communication = 0;
  int64_t libraries = 0;
  // False if the driver reports no memory use; `context` is then the value that
  // plans reserve.
  bool is_measured = true;

  int64_t total() const { return context + communication + libraries; }
  bool operator==(const DeviceFootprint&) const = default;
};

// The bytes, at least 0, that this process took between two samples, not
// counting `more_segments`. Uses the process's own bytes if the driver reports
// them, else the bytes of all processes. Returns nullopt if the driver reports
// neither.
std::optional<int64_t> bytes_taken(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after, int64_t more_segments);

// The footprint on a device whose context was created between two samples.
DeviceFootprint footprint_of_context(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after);

// The memory into which a rank must fit.
struct DeviceRoom {
  int64_t bytes = 0;
  // True if --memory-limit is the limit, false if the card and other processes
  // are.
  bool is_limit = false;
  int64_t card_bytes = 0;
};

// `memory_limit` is 0 if there is none. `held` is the memory that this process
// has allocated, for drivers that do not report it.
DeviceRoom device_room(int64_t memory_limit, int64_t card_bytes,
                       const std::optional<devices::DeviceUse>& use,
                       int64_t held);

// The segments of a step as planned, and with the least memory that the memory
// ladder (memory_ladder.h) can reach.
struct StepSegments {
  predict::SegmentEstimate planned;
  predict::SegmentEstimate leanest;
};
StepSegments step_segments(predict::MemoryRequest request,
                           const plan::MeshCoordinates& rank);

// A text for users: "segments of 1.2 GiB for 1.1 GiB of tensors, 400 MiB of
// context, 20 MiB of communication".
std::string describe(const predict::SegmentEstimate& segments,
                     const DeviceFootprint& footprint);

// Throws Error (exit 3) with all numbers if a step does not fit even with the
// settings that need the least memory.
void require_room(int rank, const StepSegments& segments,
                  const DeviceFootprint& footprint, const DeviceRoom& room);

}  // namespace headroom::memory
