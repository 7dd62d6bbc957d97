#include "parallel/collectives/network_collectives.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend_parts.h"

namespace headroom::collectives {
namespace {

enum class Kind : uint64_t {
  kSum = 1,
  kMax,
  kSmallSum,
  kSmallMax,
  kGather,
  kBroadcast,
  kBarrier
};

// A label sent before the data of each collective, so that ranks that call
// different collectives fail instead of mixing their data.
uint64_t label_of(Kind kind, size_t bytes) {
  constexpr int kKindBits = 56;
  return static_cast<uint64_t>(kind) << kKindBits | bytes;
}

Bytes bytes_of_label(uint64_t& label) {
  return std::as_writable_bytes(std::span(&label, 1));
}

[[noreturn]] void throw_differs(int rank) {
  throw std::runtime_error(
      cat("rank ", rank,
          " calls another operation, or has another number of bytes"));
}

// Sends this rank's label to the rank `to` and compares the label from the rank
// `from`; -1 means no rank.
void check_same(NetworkGroup& group, uint64_t label, int to, int from) {
  uint64_t own = label, others = label;
  group.exchange(to, to < 0 ? Bytes() : bytes_of_label(own), from,
                 from < 0 ? Bytes() : bytes_of_label(others));
  if (others != label) throw_differs(from);
}

// own[i] = own[i] op others[i]
void add(at::ScalarType type, ReduceOp op, Bytes own, Bytes others) {
  const auto count = static_cast<int64_t>(own.size() / c10::elementSize(type));
  reduce_parts(type, {own.data(), others.data()}, op, 0, count, own.data());
}

int position_of(int rank, const std::vector<int>& leaders) {
  return static_cast<int>(std::ranges::lower_bound(leaders, rank) -
                          leaders.begin());
}

int power_of_two_below(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

// Divides a tensor into one chunk per rank; the last chunks may be shorter or
// empty. Chunk bounds and the order of sums are Gloo's, so training gives the
// same bits as with Gloo.
class Chunks {
 public:
  Chunks(Bytes whole, size_t width, int ranks) : whole_(whole), ranks_(ranks) {
    const auto up_to = [](size_t value, size_t unit) {
      return (value + unit - 1) / unit * unit;
    };
    constexpr size_t kLargestSegment = 1 << 20;  // a multiple of every width
    const auto size = static_cast<size_t>(ranks);
    const size_t segments =
        up_to(std::max((whole.size() + kLargestSegment - 1) / kLargestSegment,
                       2 * size),
              size);
    bytes_ = segments / size *
             up_to((whole.size() + segments - 1) / segments, width);
  }
  Bytes operator[](int index) const {
    const size_t begin =
        std::min(whole_.size(), static_cast<size_t>(index % ranks_) * bytes_);
    return whole_.subspan(begin, std::min(bytes_, whole_.size() - begin));
  }

 private:
  const Bytes whole_;
  const int ranks_;
  size_t bytes_;
};

// This rank's messages of one small sum. Each is the label and the values, sent
// together: a message of its own for the label would double the latency.
class SmallMessages {
 public:
  SmallMessages(NetworkGroup& group, uint64_t label, Bytes values)
      : group_(group),
        label_(label),
        values_(values),
        out_(sizeof(label) + values.size()),
        in_(out_.size()) {
    std::ranges::copy(bytes_of_label(label_), out_.begin());
  }

  void send(int to) { group_.exchange(to, filled(), -1, Bytes()); }
  // Returns the other rank's values, which are valid until the next call.
  Bytes receive(int from) { return exchange(-1, {}, from); }
  Bytes swap(int with) { return exchange(with, filled(), with); }

 private:
  Bytes filled() {
    std::ranges::copy(values_, out_.begin() + sizeof(label_));
    return out_;
  }
  Bytes exchange(int to, Bytes out, int from) {
    group_.exchange(to, out, from, in_, [&](Bytes arrived) {
      if (arrived.size() < sizeof(label_)) return;
      if (!std::ranges::equal(arrived.first(sizeof(label_)),
                              bytes_of_label(label_))) {
        throw_differs(from);
      }
    });
    return Bytes(in_).subspan(sizeof(label_));
  }

  NetworkGroup& group_;
  uint64_t label_;
  const Bytes values_;
  std::vector<std::byte> out_, in_;
};

// Reduces `values` over the machines' leaders, of which this rank is one.
void reduce_between_machines(NetworkGroup& group, at::ScalarType type,
                             ReduceOp op, Bytes values) {
  const std::vector<int>& leaders = group.leaders();
  const int size = static_cast<int>(leaders.size());
  const int here = position_of(group.rank(), leaders);
  const int paired = power_of_two_below(size);
  SmallMessages messages(
      group,
      label_of(op == ReduceOp::kSum ? Kind::kSmallSum : Kind::kSmallMax,
               values.size()),
      values);
  if (here >= paired) {
    const int other = leaders[here - paired];
    messages.send(other);
    std::ranges::copy(messages.receive(other), values.begin());
    return;
  }
  const int extra = here + paired < size ? leaders[here + paired] : -1;
  if (extra >= 0) add(type, op, values, messages.receive(extra));
  const auto count =
      static_cast<int64_t>(values.size() / c10::elementSize(type));
  for (int distance = 1; distance < paired; distance *= 2) {
    const int other = here ^ distance;
    std::byte* const theirs = messages.swap(leaders[other]).data();
    // Both ranks of a pair add in the same order, so both get the same bits,
    // also of a sum that is not a number.
    const bool is_first = here < other;
    reduce_parts(
        type,
        {is_first ? values.data() : theirs, is_first ? theirs : values.data()},
        op, 0, count, values.data());
  }
  if (extra >= 0) messages.send(extra);
}

// A failure of the machine's group, with its reason alone: the caller adds
// which rank and which operation failed.
void meet_on_machine(SharedGroup& machine) {
  try {
    machine.meet("all_reduce");
  } catch (const CommunicationError&) {
    throw std::runtime_error(machine.failure());
  }
}

}  // namespace

bool is_small_sum(const at::Tensor& tensor, int ranks) {
  constexpr int64_t kSmallBytes = 64 << 10;
  constexpr int64_t kSmallChunk = 4 << 10;
  const int64_t most = std::max(kSmallBytes, kSmallChunk * ranks);
  return static_cast<int64_t>(tensor.nbytes()) <=
         std::min(most, SharedGroup::kPartBytes);
}

std::vector<int> sum_partners(const std::vector<int>& leaders, int rank) {
  if (!std::ranges::binary_search(leaders, rank)) return {};
  const int size = static_cast<int>(leaders.size());
  const int here = position_of(rank, leaders);
  const int paired = power_of_two_below(size);
  if (here >= paired) return {leaders[here - paired]};
  std::vector<int> partners;
  for (int distance = 1; distance < paired; distance *= 2) {
    partners.push_back(leaders[here ^ distance]);
  }
  if (here + paired < size) partners.push_back(leaders[here + paired]);
  return partners;
}

void reduce_by_doubling(NetworkGroup& group, const at::Tensor& tensor,
                        ReduceOp op) {
  const Bytes own = bytes_of(tensor);
  const at::ScalarType type = tensor.scalar_type();
  SharedGroup* const machine = group.machine();
  if (machine == nullptr) return reduce_between_machines(group, type, op, own);
  const std::vector<std::byte*>& parts =
      machine->begin({static_cast<int64_t>(op), tensor.numel()});
  std::ranges::copy(own, parts[machine->rank()]);
  meet_on_machine(*machine);
  const Bytes sum(parts[0], own.size());
  if (machine->rank() == 0) {
    reduce_parts(type, parts, op, 0, tensor.numel(), sum.data());
    reduce_between_machines(group, type, op, sum);
  }
  meet_on_machine(*machine);
  std::ranges::copy(sum, own.begin());
}

void reduce_around_ring(NetworkGroup& group, const at::Tensor& tensor,
                        ReduceOp op) {
  const int rank = group.rank(), size = group.size();
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  const Bytes whole = bytes_of(tensor);
  check_same(
      group,
      label_of(op == ReduceOp::kSum ? Kind::kSum : Kind::kMax, whole.size()),
      left, right);
  const Chunks chunks(whole, tensor.element_size(), size);
  for (int i = 0; i + 1 < size; ++i) {
    const Bytes own = chunks[rank + 2 + i];
    group.exchange(left, chunks[rank + 1 + i], right, own.size(),
                   [&](size_t offset, Bytes piece) {
                     add(tensor.scalar_type(), op,
                         own.subspan(offset, piece.size()), piece);
                   });
  }
  for (int i = 0; i + 1 < size; ++i) {
    group.exchange(left, chunks[rank + i], right, chunks[rank + 1 + i]);
  }
}

void gather_around_ring(NetworkGroup& group, Bytes whole) {
  const int rank = group.rank(), size = group.size();
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  check_same(group, label_of(Kind::kGather, whole.size()), left, right);
  const size_t part = whole.size() / static_cast<size_t>(size);
  const auto part_of = [&](int index) {
    return whole.subspan(static_cast<size_t>(index % size) * part, part);
  };
  for (int i = 0; i + 1 < size; ++i) {
    group.exchange(left, part_of(rank + i), right, part_of(rank + 1 + i));
  }
}

void broadcast_down_tree(NetworkGroup& group, Bytes whole, int root) {
  const int size = group.size();
  const int place = (group.rank() - root + size) % size;
  const auto rank_at = [&](int other) { return (other + root) % size; };
  const uint64_t label = label_of(Kind::kBroadcast, whole.size());
  int distance = 1;
  for (; distance < size; distance *= 2) {
    if ((place & distance) == 0) continue;
    const int parent = rank_at(place - distance);
    check_same(group, label, -1, parent);
    group.exchange(-1, {}, parent, whole);
    break;
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (place + distance >= size) continue;
    const int child = rank_at(place + distance);
    check_same(group, label, child, -1);
    group.exchange(child, whole, -1, Bytes());
  }
}

void meet(NetworkGroup& group) {
  const int size = group.size();
  for (int distance = 1; distance < size; distance *= 2) {
    check_same(group, label_of(Kind::kBarrier, static_cast<size_t>(distance)),
               (group.rank() + distance) % size,
               (group.rank() + size - distance) % size);
  }
}

}  // namespace headroom::collectives
