#include "worker/run/device_memory_report.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "parallel/base/units.h"

namespace headroom::run {
namespace {

constexpr size_t kNumbers = 8;  // of a line

devices::DeviceApi& api_of(const devices::ComputeDevice& device) {
  return *device.api();
}

int index_of(const devices::ComputeDevice& device) {
  return device.device().index();
}

std::array<int64_t, kNumbers> numbers_of(const DeviceMemoryLine& line) {
  const memory::DeviceFootprint& footprint = line.footprint;
  return {footprint.context,   footprint.communication,
          footprint.libraries, footprint.is_measured ? 1 : 0,
          line.workspace,      line.tensors,
          line.segments,       line.room};
}

}  // namespace

DeviceMemorySample::DeviceMemorySample(const devices::ComputeDevice& device)
    : device_(device),
      use_(api_of(device).use_of(index_of(device))),
      segments_(api_of(device).memory(index_of(device)).reserved_bytes()) {}

std::optional<int64_t> DeviceMemorySample::taken_since() const {
  const DeviceMemorySample now(device_);
  return memory::bytes_taken(use_, now.use_, now.segments_ - segments_);
}

memory::DeviceRoom room_now(const devices::ComputeDevice& device,
                            int64_t memory_limit,
                            const memory::DeviceFootprint& footprint) {
  devices::DeviceApi& api = api_of(device);
  const int index = index_of(device);
  return memory::device_room(
      memory_limit, api.describe(index).total_bytes, api.use_of(index),
      footprint.total() + api.memory(index).reserved_bytes());
}

std::vector<DeviceMemoryLine> gather_device_memory(
    collectives::Communicator& world, const DeviceMemoryLine& line) {
  std::vector<int64_t> all(kNumbers * static_cast<size_t>(world.size()), 0);
  std::ranges::copy(
      numbers_of(line),
      all.begin() + static_cast<std::ptrdiff_t>(kNumbers) * world.rank());
  world.all_reduce(
      at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kLong),
      collectives::ReduceOp::kMax);
  std::vector<DeviceMemoryLine> ranks;
  for (size_t i = 0; i < all.size(); i += kNumbers) {
    ranks.push_back({{all[i], all[i + 1], all[i + 2], all[i + 3] != 0},
                     all[i + 4],
                     all[i + 5],
                     all[i + 6],
                     all[i + 7]});
  }
  return ranks;
}

bool any_lacks_room(const std::vector<DeviceMemoryLine>& ranks) {
  return std::ranges::any_of(ranks, [](const DeviceMemoryLine& line) {
    return line.needed() > line.room;
  });
}

int fullest_rank(const std::vector<DeviceMemoryLine>& ranks) {
  const auto fullest = std::ranges::max_element(
      ranks, {},
      [](const DeviceMemoryLine& line) { return line.needed() - line.room; });
  return static_cast<int>(fullest - ranks.begin());
}

memory::StepEvent device_memory_event(
    const std::vector<DeviceMemoryLine>& ranks) {
  const DeviceMemoryLine& fullest =
      ranks[static_cast<size_t>(fullest_rank(ranks))];
  predict::SegmentEstimate segments;
  segments.tensor_bytes = fullest.tensors;
  segments.segment_bytes = fullest.segments;
  std::string text = "needs up to " + format_bytes(fullest.needed()) +
                     " of the " + format_bytes(fullest.room) +
                     " that it may take of its device: " +
                     memory::describe(segments, fullest.footprint);
  if (fullest.workspace > 0) {
    text += "; a convolution's workspace has taken up to " +
            format_bytes(fullest.workspace) + " of them";
  }
  if (fullest.needed() > fullest.room) {
    text += "; a step that does not fit is tried again, leaner";
  }
  return {"device_memory", text, R"({"ranks":)" + to_json(ranks) + "}"};
}

std::string to_json(const std::vector<DeviceMemoryLine>& ranks) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const DeviceMemoryLine& line = ranks[rank];
    array.push_back({{"rank", rank},
                     {"context_bytes", line.footprint.context},
                     {"context_is_measured", line.footprint.is_measured},
                     {"communication_bytes", line.footprint.communication},
                     {"libraries_bytes", line.footprint.libraries},
                     {"workspace_bytes", line.workspace},
                     {"tensor_bytes", line.tensors},
                     {"segment_bytes", line.segments},
                     {"needed_bytes", line.needed()},
                     {"room_bytes", line.room}});
  }
  return array.dump();
}

}  // namespace headroom::run
