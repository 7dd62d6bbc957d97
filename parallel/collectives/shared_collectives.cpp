#include "parallel/collectives/shared_collectives.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/gather.h"

namespace headroom::collectives {
namespace {

// Place::number is (buffer index << kOffsetBits) + offset in the buffer.
constexpr int kOffsetBits = 48;

struct Offer {
  int64_t is_ready = 0;
  SegmentAddress address;
};

enum Operation : int64_t {
  kSum,
  kMax,
  kSumInPlace,
  kMaxInPlace,
  kGather,
  kGatherInPlace,
  kScatter,
  kBarrier,
  kBroadcast  // the last value: the root's rank is added to it
};

// Up to this size every rank computes the whole sum, which takes one meeting
// instead of two.
constexpr int64_t kSmallBytes = 16 << 10;

// A sum in place is computed in pieces of this size. They are small enough that
// a result is still in the first-level cache when it is copied to the peers.
// The size is a multiple of the cache line.
constexpr int64_t kPieceBytes = 8 << 10;

// Calls body(data, bytes, count) for each piece of at most `largest_bytes`.
template <typename Body>
void in_pieces(const at::Tensor& flat, int64_t largest_bytes,
               const Body& body) {
  auto* data = static_cast<std::byte*>(flat.data_ptr());
  const auto width = static_cast<int64_t>(flat.element_size());
  const int64_t largest = largest_bytes / width;
  for (int64_t left = flat.numel(); left > 0;) {
    const int64_t count = std::min(left, largest);
    body(data, count * width, count);
    data += count * width;
    left -= count;
  }
}

}  // namespace

at::Tensor SharedBuffers::create(Communicator& ranks, int64_t count,
                                 at::ScalarType type) {
  Buffer buffer;
  buffer.bytes = count * static_cast<int64_t>(c10::elementSize(type));
  HEADROOM_CHECK(buffer.bytes > 0 && buffer.bytes < int64_t{1} << kOffsetBits,
                 cat("a buffer of ", buffer.bytes, " bytes"));
  const auto bytes = static_cast<size_t>(buffer.bytes);
  Offer mine;
  // Thrown only after the peers, which wait for this rank, are informed.
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

void SharedCollectives::all_reduce(const at::Tensor& flat, ReduceOp op) {
  const auto bytes = static_cast<int64_t>(flat.nbytes());
  const std::optional<SharedBuffers::Place> place =
      bytes > kSmallBytes ? buffers_.find(flat.data_ptr(), bytes)
                          : std::nullopt;
  if (place) {
    reduce_in_place(flat, op, *place);
  } else {
    reduce_staged(flat, op);
  }
}

void SharedCollectives::reduce_in_place(const at::Tensor& flat, ReduceOp op,
                                        const SharedBuffers::Place& place) {
  group_.begin({op == ReduceOp::kSum ? kSumInPlace : kMaxInPlace, flat.numel(),
                place.number});
  group_.meet("all_reduce");
  const auto bytes = static_cast<int64_t>(flat.nbytes());
  // Each rank sums whole pieces, so that no two ranks write to one cache line.
  const int64_t pieces = divided_up(bytes, kPieceBytes);
  const int64_t first = pieces * group_.rank() / group_.size();
  const int64_t last = pieces * (group_.rank() + 1) / group_.size();
  const auto width = static_cast<int64_t>(flat.element_size());
  std::byte* const mine = place.parts[static_cast<size_t>(group_.rank())];
  for (int64_t piece = first; piece < last; ++piece) {
    const int64_t begin = piece * kPieceBytes;
    const int64_t end = std::min(begin + kPieceBytes, bytes);
    reduce_parts(flat.scalar_type(), place.parts, op, begin / width,
                 end / width, mine + begin);
    for (std::byte* part : place.parts) {
      if (part != mine) std::memcpy(part + begin, mine + begin, end - begin);
    }
  }
  group_.meet("all_reduce");
}

void SharedCollectives::reduce_staged(const at::Tensor& flat, ReduceOp op) {
  in_pieces(flat, SharedGroup::kPartBytes,
            [&](std::byte* data, int64_t bytes, int64_t count) {
              const auto& parts =
                  group_.begin({op == ReduceOp::kSum ? kSum : kMax, count});
              std::memcpy(parts[group_.rank()], data, bytes);
              group_.meet("all_reduce");
              if (bytes <= kSmallBytes) {
                reduce_parts(flat.scalar_type(), parts, op, 0, count, data);
                return;
              }
              const int64_t begin = count * group_.rank() / group_.size();
              const int64_t end = count * (group_.rank() + 1) / group_.size();
              const int64_t width = bytes / count;
              reduce_parts(flat.scalar_type(), parts, op, begin, end,
                           data + begin * width);
              for (std::byte* part : parts) {
                std::memcpy(part + begin * width, data + begin * width,
                            (end - begin) * width);
              }
              group_.meet("all_reduce");
              std::memcpy(data, parts[group_.rank()], begin * width);
              std::memcpy(data + end * width,
                          parts[group_.rank()] + end * width,
                          bytes - end * width);
            });
}

void SharedCollectives::all_gather(const at::Tensor& whole,
                                   const at::Tensor& part) {
  auto* const target = static_cast<std::byte*>(whole.data_ptr());
  const auto part_bytes = static_cast<int64_t>(part.nbytes());
  int64_t offset = 0;
  in_pieces(part, SharedGroup::kPartBytes,
            [&](std::byte* data, int64_t bytes, int64_t count) {
              const auto& parts = group_.begin({kGather, count});
              std::memcpy(parts[group_.rank()], data, bytes);
              group_.meet("all_gather");
              for (int rank = 0; rank < group_.size(); ++rank) {
                std::memcpy(target + rank * part_bytes + offset, parts[rank],
                            bytes);
              }
              offset += bytes;
            });
}

void SharedCollectives::all_gather_pieces(
    const at::Tensor& flat, const std::vector<int64_t>& part_sizes) {
  const std::optional<SharedBuffers::Place> place =
      buffers_.find(flat.data_ptr(), static_cast<int64_t>(flat.nbytes()));
  HEADROOM_CHECK(place.has_value(), "pieces outside of shared buffers");
  group_.begin({kGatherInPlace, flat.numel(), place->number});
  group_.meet("all_gather");
  const auto width = static_cast<int64_t>(flat.element_size());
  std::byte* const mine = place->parts[static_cast<size_t>(group_.rank())];
  int64_t begin = 0;
  for (const int64_t part_size : part_sizes) {
    const int64_t bytes = part_size * width;
    for (int rank = 0; rank < group_.size(); ++rank, begin += bytes) {
      const std::byte* const theirs = place->parts[static_cast<size_t>(rank)];
      if (theirs != mine) std::memcpy(mine + begin, theirs + begin, bytes);
    }
  }
  // Until here peers read this rank's parts.
  group_.meet("all_gather");
}

void SharedCollectives::reduce_scatter(const at::Tensor& part,
                                       const at::Tensor& whole) {
  const auto* const source = static_cast<const std::byte*>(whole.data_ptr());
  const auto part_bytes = static_cast<int64_t>(part.nbytes());
  int64_t offset = 0;
  in_pieces(part, SharedGroup::kPartBytes / group_.size() / 64 * 64,
            [&](std::byte* data, int64_t bytes, int64_t count) {
              const auto& parts = group_.begin({kScatter, count});
              for (int rank = 0; rank < group_.size(); ++rank) {
                std::memcpy(parts[group_.rank()] + rank * bytes,
                            source + rank * part_bytes + offset, bytes);
              }
              group_.meet("reduce_scatter");
              reduce_parts(part.scalar_type(), parts, ReduceOp::kSum,
                           group_.rank() * count, (group_.rank() + 1) * count,
                           data);
              offset += bytes;
            });
}

void SharedCollectives::broadcast(const at::Tensor& flat, int root) {
  in_pieces(flat, SharedGroup::kPartBytes,
            [&](std::byte* data, int64_t bytes, int64_t count) {
              const auto& parts = group_.begin({kBroadcast + root, count});
              if (group_.rank() == root) std::memcpy(parts[root], data, bytes);
              group_.meet("broadcast");
              if (group_.rank() != root) std::memcpy(data, parts[root], bytes);
            });
}

void SharedCollectives::barrier() {
  group_.begin({kBarrier, 0});
  group_.meet("barrier");
}

}  // namespace headroom::collectives
