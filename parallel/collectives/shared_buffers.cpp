#include "parallel/collectives/shared_buffers.h"

#include <ATen/ops/from_blob.h>

#include <exception>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/outside_memory.h"
#include "parallel/collectives/agreement.h"

namespace headroom::collectives {
namespace {

// Of buffers, in Place::number; no buffer is larger.
constexpr int kOffsetBits = 48;

struct Offer {
  int64_t is_ready = 0;
  SegmentAddress address;
};
}  // namespace

at::Tensor SharedBuffers::create(Communicator& ranks, int64_t count,
                                 at::ScalarType type) {
  Buffer buffer;
  buffer.bytes = count * static_cast<int64_t>(c10::elementSize(type));
  HEADROOM_CHECK(buffer.bytes > 0 && buffer.bytes < int64_t{1} << kOffsetBits,
                 "a buffer of " + std::to_string(buffer.bytes) + " bytes");
  const auto bytes = static_cast<size_t>(buffer.bytes);
  Offer mine;
  // Not thrown before the peers know: they wait for this rank.
  std::exception_ptr refused;
  try {
    std::shared_ptr<void> counted = OutsideMemory::count(buffer.bytes);
    buffer.own = std::make_shared<Memory>(
        Memory{std::move(counted), SharedSegment::create(bytes)});
    mine = {1, buffer.own->segment.address()};
  } catch (const Error& error) {
    log::debug("sums are staged: " + error.text());
  } catch (...) {
    refused = std::current_exception();
  }
  const std::vector<Offer> all = tell_all(ranks, mine);
  bool can = true;
  for (const Offer& offer : all) can &= offer.is_ready != 0;
  try {
    for (int rank = 0; can && rank < ranks.size(); ++rank) {
      if (rank == ranks.rank()) {
        buffer.parts.push_back(buffer.own->segment.data());
        continue;
      }
      buffer.peers.push_back(
          SharedSegment::open(all[static_cast<size_t>(rank)].address, bytes));
      buffer.parts.push_back(buffer.peers.back().data());
    }
  } catch (const Error& error) {
    log::debug("sums are staged: " + error.text());
    can = false;
  }
  can = all_agree(ranks, can);
  if (refused) std::rethrow_exception(refused);
  if (!can) return {};
  buffers_.push_back(std::move(buffer));
  const std::shared_ptr<Memory> own = buffers_.back().own;
  return at::from_blob(
      own->segment.data(), {count}, [own](void*) {}, type);
}

std::optional<SharedBuffers::Place> SharedBuffers::find(const void* data,
                                                        int64_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  for (size_t index = 0; index < buffers_.size(); ++index) {
    const Buffer& buffer = buffers_[index];
    const std::byte* const own = buffer.own->segment.data();
    if (begin < own || begin + bytes > own + buffer.bytes) continue;
    const int64_t offset = begin - own;
    Place place{(static_cast<int64_t>(index) << kOffsetBits) + offset, {}};
    for (std::byte* part : buffer.parts) place.parts.push_back(part + offset);
    return place;
  }
  return std::nullopt;
}

}  // namespace headroom::collectives
