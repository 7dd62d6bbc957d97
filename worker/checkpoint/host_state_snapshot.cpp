#include "worker/checkpoint/host_state_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/checkpoint/checkpoint.h"

namespace headroom::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int64_t kAlignment = 64;  // packed parts begin at multiples of this

int64_t aligned(int64_t bytes) { return round_up(bytes, kAlignment); }

}  // namespace

HostStateSnapshot parts_of(step::TrainingState& state,
                           const std::string& newest_line) {
  HostStateSnapshot held;
  held.counters = state.counters;
  held.newest_line = newest_line;
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t index = 0; index < buffer.flat_buffer->layers().size();
         ++index) {
      const data_parallel::FlatBuffer::Layer& layer =
          buffer.flat_buffer->layers()[index];
      HeldPart part;
      part.buffer = buffer.name;
      part.layer = layer.number;
      int64_t from = layer.offset;
      int64_t size = layer.size;
      if (buffer.shards != nullptr) {
        const auto shard_layer = static_cast<int64_t>(index);
        const int64_t slice = buffer.shards->slice_size(shard_layer);
        part.begin = state.mesh()->data->rank() * slice;
        from = buffer.shards->shard_offset(shard_layer);
        size = std::clamp<int64_t>(layer.size - part.begin, 0, slice);
      }
      if (size == 0) continue;
      part.values = buffer.flat->detach().narrow(0, from, size);
      held.parts.push_back(std::move(part));
    }
  }
  return held;
}

HostStateSnapshot hold_state(step::TrainingState& state,
                             const std::string& newest_line) {
  const at::NoGradGuard no_grad;
  const activations::CountingAllocator::HostMemory host;
  HostStateSnapshot held = parts_of(state, newest_line);
  for (HeldPart& part : held.parts) {
    part.values = part.values.to(at::kCPU, part.values.scalar_type(),
                                 /*non_blocking=*/false, /*copy=*/true);
  }
  return held;
}

// Layout: the header's length, the header, then the parts, each aligned.
at::Tensor pack(const HostStateSnapshot& held) {
  const at::NoGradGuard no_grad;
  const activations::CountingAllocator::HostMemory host;
  Json parts = Json::array();
  int64_t bytes = 0;
  for (const HeldPart& part : held.parts) {
    parts.push_back({part.buffer, part.layer, part.begin, part.values.numel(),
                     static_cast<int>(part.values.scalar_type()), bytes});
    bytes += aligned(static_cast<int64_t>(part.values.nbytes()));
  }
  const std::string header = Json({counters_to_text(held.counters),
                                   held.newest_line, std::move(parts)})
                                 .dump();
  const std::string head = number_bytes<int64_t>(header.size()) + header;
  const int64_t begin = aligned(static_cast<int64_t>(head.size()));
  at::Tensor message = at::empty({begin + bytes}, at::kByte);
  std::memcpy(message.mutable_data_ptr(), head.data(), head.size());
  int64_t at = begin;
  for (const HeldPart& part : held.parts) {
    const auto size = static_cast<int64_t>(part.values.nbytes());
    // Also copies from a device, if the state is on one.
    message.narrow(0, at, size)
        .view(part.values.scalar_type())
        .copy_(part.values);
    at += aligned(size);
  }
  return message;
}

HostStateSnapshot unpack(const at::Tensor& message) {
  const std::string_view bytes(
      static_cast<const char*>(message.const_data_ptr()),
      static_cast<size_t>(message.numel()));
  const auto length = number_at<uint64_t>(bytes, 0);
  HEADROOM_CHECK(
      length <= bytes.size() - sizeof length,
      cat("a header of ", length, " bytes in a message of ", bytes.size()));
  const Json header = Json::parse(bytes.substr(sizeof length, length));
  const int64_t begin = aligned(static_cast<int64_t>(sizeof length + length));
  HostStateSnapshot held;
  held.counters = counters_from_text(header.at(0).get<std::string>());
  held.newest_line = header.at(1).get<std::string>();
  for (const Json& about : header.at(2)) {
    const auto type = static_cast<at::ScalarType>(about.at(4).get<int>());
    const int64_t bytes = about.at(3).get<int64_t>() *
                          static_cast<int64_t>(c10::elementSize(type));
    held.parts.push_back(
        {about.at(0).get<std::string>(), about.at(1).get<int64_t>(),
         about.at(2).get<int64_t>(),
         message.narrow(0, begin + about.at(5).get<int64_t>(), bytes)
             .view(type)});
  }
  return held;
}

}  // namespace headroom::checkpoint
