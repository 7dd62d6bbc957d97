// DeviceFootprint: what a process has on its device beside the segments that
// its tensors are cut from, and whether both fit there.
//
//   context         the driver's bytes and code, from the first call on
//   communication   the communicators of this generation's ranks, connected
//   libraries       kernels that are loaded during the first step
//
// Each is the difference of two samples of the device (bytes_taken). The card,
// or --memory-limit, must hold the three and the segments of a step.
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
  // False: the driver does not tell, and `context` is what plans reserve.
  bool is_measured = true;

  int64_t total() const { return context + communication + libraries; }
  bool operator==(const DeviceFootprint&) const = default;
};

// The bytes, at least 0, that this process took between two samples beside
// `more_segments`. They are counted from its own bytes where the driver tells
// these, else from everyone's; nothing where it tells neither.
std::optional<int64_t> bytes_taken(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after, int64_t more_segments);

// The footprint on a device whose context was created between two samples.
DeviceFootprint footprint_of_context(
    const std::optional<devices::DeviceUse>& before,
    const std::optional<devices::DeviceUse>& after);

// The room into which a rank's bytes have to fit.
struct DeviceRoom {
  int64_t bytes = 0;
  bool is_limit = false;  // --memory-limit's; else what others leave
  int64_t card_bytes = 0;
};

// `memory_limit` is 0 where there is none. `held` is what this process has
// taken, for where the driver does not tell.
DeviceRoom device_room(int64_t memory_limit, int64_t card_bytes,
                       const std::optional<devices::DeviceUse>& use,
                       int64_t held);

// The segments of a step as planned, and on the leanest rung of the memory
// ladder (memory_ladder.h).
struct StepSegments {
  predict::SegmentEstimate planned;
  predict::SegmentEstimate leanest;
};
StepSegments step_segments(predict::MemoryRequest request,
                           const plan::MeshCoordinates& rank);

// The sentence that people read: "segments of 1.2 GiB for 1.1 GiB of tensors,
// 400 MiB of context, 20 MiB of communication".
std::string describe(const predict::SegmentEstimate& segments,
                     const DeviceFootprint& footprint);

// Throws Error (exit 3) where not even the leanest step fits, with all numbers.
void require_room(int rank, const StepSegments& segments,
                  const DeviceFootprint& footprint, const DeviceRoom& room);

}  // namespace headroom::memory
