#include <ATen/core/Tensor.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/network_group.h"
#include "parallel/collectives/tensor_port.h"

namespace headroom::collectives {
namespace {

// --- one rank's part of each collective --------------------------------------

enum class Kind : uint64_t { kSum = 1, kMax, kGather, kBroadcast, kBarrier };

// A label sent before the data of each collective, so that ranks that call
// different collectives fail instead of mixing their data.
uint64_t label_of(Kind kind, size_t bytes) {
  constexpr int kKindBits = 56;
  return static_cast<uint64_t>(kind) << kKindBits | bytes;
}

Bytes bytes_of_label(uint64_t& label) {
  return std::as_writable_bytes(std::span(&label, 1));
}

// Sends this rank's label to the rank `to` and compares the label from the rank
// `from`; -1 means no rank.
void check_same(NetworkGroup& group, uint64_t label, int to, int from) {
  uint64_t own = label, others = label;
  group.exchange(to, to < 0 ? Bytes() : bytes_of_label(own), from,
                 from < 0 ? Bytes() : bytes_of_label(others));
  if (others == label) return;
  throw std::runtime_error(
      cat("rank ", from,
          " calls another operation, or has another number "
          "of bytes"));
}

template <typename Scalar>
void combine(ReduceOp op, Bytes own, Bytes others) {
  auto* const target = reinterpret_cast<Scalar*>(own.data());
  const auto* const values = reinterpret_cast<const Scalar*>(others.data());
  const size_t count = others.size() / sizeof(Scalar);
  if (op == ReduceOp::kSum) {
    for (size_t i = 0; i < count; ++i) target[i] += values[i];
  } else {
    for (size_t i = 0; i < count; ++i) {
      target[i] = std::max(target[i], values[i]);
    }
  }
}

void combine(at::ScalarType type, ReduceOp op, Bytes own, Bytes others) {
  switch (type) {
    case at::kFloat:
      return combine<float>(op, own, others);
    case at::kDouble:
      return combine<double>(op, own, others);
    case at::kLong:
      return combine<int64_t>(op, own, others);
    default:  // other types were refused by flat_view
      return combine<uint8_t>(op, own, others);
  }
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

// Each chunk passes once round the ring, from rank to previous rank, and every
// rank adds its values: rank r gets the sum of chunk r. Then the sums pass
// round the ring.
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
                     combine(tensor.scalar_type(), op,
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

// Sends along a binomial tree: a rank that has received the bytes sends them to
// one rank after another, each at half the distance of the one before.
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

// A barrier. After the step with distance d, this rank and the 2d - 1 ranks
// before it have arrived.
void meet(NetworkGroup& group) {
  const int size = group.size();
  for (int distance = 1; distance < size; distance *= 2) {
    check_same(group, label_of(Kind::kBarrier, static_cast<size_t>(distance)),
               (group.rank() + distance) % size,
               (group.rank() + size - distance) % size);
  }
}

// --- the communicator --------------------------------------------------------

class SocketWork final : public Work {
 public:
  SocketWork(std::shared_ptr<NetworkGroup> group, const char* name,
             NetworkGroup::Handle operation)
      : group_(std::move(group)),
        name_(name),
        operation_(std::move(operation)) {}
  void wait() override { group_->await(*operation_, name_); }

 private:
  const std::shared_ptr<NetworkGroup> group_;
  const char* const name_;
  const NetworkGroup::Handle operation_;
};

class AllWorks final : public Work {
 public:
  explicit AllWorks(std::vector<std::unique_ptr<Work>> works)
      : works_(std::move(works)) {}
  void wait() override {
    for (const std::unique_ptr<Work>& work : works_) work->wait();
  }

 private:
  std::vector<std::unique_ptr<Work>> works_;
};

class NetworkCommunicator final : public Communicator {
 public:
  NetworkCommunicator(GroupMembers members, const NetworkOptions& options)
      : members_(as_connected(std::move(members), options)),
        options_(options),
        group_(std::make_shared<NetworkGroup>(members_, options.timeout)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    return begin("all_reduce",
                 [flat = flat_view(tensor), op](NetworkGroup& group) {
                   reduce_around_ring(group, flat, op);
                 });
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    all_gather_async(output, input)->wait();
  }
  std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                         const at::Tensor& input) override {
    const at::Tensor whole = flat_view(output);
    const at::Tensor part = flat_view(input);
    check_multiple(whole, part, size());
    const int64_t count = part.numel();
    whole.narrow(0, rank() * count, count).copy_(part);
    if (!members_.is_full_mesh) {
      // A gather by messages would need a connection between every two ranks.
      return begin("all_gather", [whole](NetworkGroup& group) {
        gather_around_ring(group, bytes_of(whole));
      });
    }
    std::vector<std::unique_ptr<Work>> messages;
    for (int peer = 0; peer < size() && count > 0; ++peer) {
      if (peer == rank()) continue;
      messages.push_back(
          recv_async(whole.narrow(0, peer * count, count), peer));
      messages.push_back(send_async(part, peer));
    }
    return std::make_unique<AllWorks>(std::move(messages));
  }
  bool gathers_in_background() const override { return true; }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const at::Tensor whole = flat_view(input);
    const at::Tensor part = flat_view(output);
    check_multiple(whole, part, size());
    const int64_t count = part.numel();
    if (count == 0) return;
    begin("reduce_scatter", [whole](NetworkGroup& group) {
      reduce_around_ring(group, whole, ReduceOp::kSum);
    })->wait();
    part.copy_(whole.narrow(0, rank() * count, count));
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    check_rank(root, size());
    begin("broadcast", [flat = flat_view(tensor), root](NetworkGroup& group) {
      broadcast_down_tree(group, bytes_of(flat), root);
    })->wait();
  }

  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    check_rank(to, size());
    return work("send", group_->send(message_view(tensor), to));
  }
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    check_rank(from, size());
    return work("recv", group_->receive(message_view(tensor), from));
  }

  void barrier() override { begin("barrier", meet)->wait(); }

  void abandon() override { group_->fail("this rank left its peers"); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    // Open the port before the split, because a peer may connect before
    // split_members() has returned on this rank.
    const TensorPort::Opening opening(*members_.port);
    const SplitMembers part = split_members(*this, color, key);
    GroupMembers members = members_;
    members.name += cat("/split", num_splits_++, "/color", color);
    members.rank = part.rank;
    members.world_ranks.clear();
    for (const int rank : part.ranks) {
      members.world_ranks.push_back(
          members_.world_ranks[static_cast<size_t>(rank)]);
    }
    if (part.ranks.size() == 1) return make_single_communicator();
    return std::make_unique<NetworkCommunicator>(std::move(members), options_);
  }

 private:
  static GroupMembers as_connected(GroupMembers members,
                                   const NetworkOptions& options) {
    members.is_full_mesh = members.world_ranks.size() <=
                           static_cast<size_t>(options.full_mesh_up_to);
    return members;
  }

  std::unique_ptr<Work> work(const char* name, NetworkGroup::Handle operation) {
    return std::make_unique<SocketWork>(group_, name, std::move(operation));
  }
  // The raw pointer is safe: the group joins the thread that runs `body`.
  std::unique_ptr<Work> begin(const char* name,
                              std::function<void(NetworkGroup&)> body) {
    return work(name,
                group_->collective([group = group_.get(),
                                    body = std::move(body)] { body(*group); }));
  }

  const GroupMembers members_;
  const NetworkOptions options_;
  const std::shared_ptr<NetworkGroup> group_;
  int64_t num_splits_ = 0;
};

// Reads the secret and all ranks' addresses. The store cannot be interrupted,
// so a detached thread reads it; if a peer is lost meanwhile, this function
// throws, and the thread ends later by itself.
void introduce(const std::shared_ptr<TensorPort>& port,
               std::shared_ptr<KeyValueStore> store, const std::string& prefix,
               int rank, int size, std::chrono::milliseconds timeout) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    std::exception_ptr failure;
  };
  const auto shared = std::make_shared<Shared>();
  const auto end = [](Shared& one, std::exception_ptr failure) {
    const std::lock_guard lock(one.mutex);
    if (one.is_done) return;
    one.is_done = true;
    one.failure = std::move(failure);
    one.changed.notify_all();
  };
  std::thread([=, store = std::move(store)] {
    try {
      port->introduce(*store, prefix, rank, size, timeout);
      end(*shared, nullptr);
    } catch (...) {
      end(*shared, std::current_exception());
    }
  }).detach();
  const PeerWait visible;
  const AbortableWait abortable([&] {
    end(*shared,
        std::make_exception_ptr(std::runtime_error("aborted: a peer is lost")));
  });
  std::unique_lock lock(shared->mutex);
  shared->changed.wait(lock, [&] { return shared->is_done; });
  if (shared->failure) std::rethrow_exception(shared->failure);
}

}  // namespace

std::unique_ptr<Communicator> make_network_communicator(
    std::shared_ptr<KeyValueStore> store, const std::string& prefix, int rank,
    int size, const NetworkOptions& options) {
  check_rank(rank, size);
  if (size == 1) return make_single_communicator();
  GroupMembers members{.port = std::make_shared<TensorPort>(options.hostname),
                       .name = prefix,
                       .rank = rank};
  for (int i = 0; i < size; ++i) members.world_ranks.push_back(i);
  // Open the port now: a peer that reads its address connects at once.
  const TensorPort::Opening opening(*members.port);
  try {
    introduce(members.port, std::move(store), prefix, rank, size,
              options.timeout);
  } catch (const std::exception& error) {
    throw CommunicationError(
        cat("rank ", rank, " of ", size, ", connecting: ", error.what()));
  }
  return std::make_unique<NetworkCommunicator>(std::move(members), options);
}

}  // namespace headroom::collectives
