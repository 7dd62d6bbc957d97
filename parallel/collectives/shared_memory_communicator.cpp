#include "parallel/collectives/shared_memory_communicator.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/collectives/flat_view.h"
#include "parallel/collectives/operand_checks.h"
#include "parallel/collectives/part_sums.h"
#include "parallel/collectives/shared_group.h"

namespace headroom {
namespace {

enum Operation : int64_t {
  kSum,
  kMax,
  kGather,
  kScatter,
  kBroadcast,
  kBarrier
};

// Up to this size every rank forms the whole sum: one meeting instead of two.
constexpr int64_t kSmallBytes = 16 << 10;

// Calls body(zero of the tensor's type).
template <typename Body>
void for_type(at::ScalarType type, const Body& body) {
  switch (type) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kLong:
      return body(int64_t{});
    default:  // flat_view admits no other
      return body(uint8_t{});
  }
}

template <typename Scalar>
std::vector<const Scalar*> typed(const std::vector<std::byte*>& parts,
                                 int64_t offset) {
  std::vector<const Scalar*> result;
  for (std::byte* part : parts) {
    result.push_back(reinterpret_cast<const Scalar*>(part) + offset);
  }
  return result;
}

// The collectives of one group, one turn after the other.
class Collectives {
 public:
  explicit Collectives(SharedGroup& group) : group_(group) {}

  void all_reduce(const at::Tensor& flat, ReduceOp op) {
    in_pieces(flat, SharedGroup::kPartBytes,
              [&](std::byte* data, int64_t bytes, int64_t count) {
                const auto& parts =
                    group_.begin({op == ReduceOp::kSum ? kSum : kMax, count});
                std::memcpy(parts[group_.rank()], data, bytes);
                group_.meet("all_reduce");
                if (bytes <= kSmallBytes) {
                  reduce(flat.scalar_type(), parts, op, 0, count, data);
                  return;
                }
                const int64_t begin = count * group_.rank() / group_.size();
                const int64_t end = count * (group_.rank() + 1) / group_.size();
                const int64_t width = bytes / count;
                reduce(flat.scalar_type(), parts, op, begin, end,
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

  void all_gather(const at::Tensor& whole, const at::Tensor& part) {
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

  void reduce_scatter(const at::Tensor& part, const at::Tensor& whole) {
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
                reduce(part.scalar_type(), parts, ReduceOp::kSum,
                       group_.rank() * count, (group_.rank() + 1) * count,
                       data);
                offset += bytes;
              });
  }

  void broadcast(const at::Tensor& flat, int root) {
    in_pieces(
        flat, SharedGroup::kPartBytes,
        [&](std::byte* data, int64_t bytes, int64_t count) {
          const auto& parts = group_.begin({kBroadcast + 8 * root, count});
          if (group_.rank() == root) {
            std::memcpy(parts[root], data, bytes);
          }
          group_.meet("broadcast");
          if (group_.rank() != root) {
            std::memcpy(data, parts[root], bytes);
          }
        });
  }

  void barrier() {
    group_.begin({kBarrier, 0});
    group_.meet("barrier");
  }

 private:
  template <typename Body>
  static void in_pieces(const at::Tensor& flat, int64_t largest_bytes,
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

  static void reduce(at::ScalarType type, const std::vector<std::byte*>& parts,
                     ReduceOp op, int64_t begin, int64_t end,
                     std::byte* target) {
    for_type(type, [&](auto zero) {
      using Scalar = decltype(zero);
      const std::vector<const Scalar*> values = typed<Scalar>(parts, begin);
      reduce_parts<Scalar>(values, op, end - begin,
                           reinterpret_cast<Scalar*>(target));
    });
  }

  SharedGroup& group_;
};

// What the communicator shares with its operations under way.
class Connection {
 public:
  Connection(std::unique_ptr<Communicator> network,
             std::unique_ptr<SharedGroup> group)
      : network_(std::move(network)), group_(std::move(group)) {}

  // Peers that wait for this rank fail, and so does what is under way here.
  void leave() {
    group_.reset();
    network_.reset();
  }

  // A failure of whatever kind ends both ways to the peers.
  template <typename Call>
  auto guard(const Call& call) {
    try {
      return call();
    } catch (const CommunicationError& error) {
      if (group_) group_->give_up(error.text());
      network_.reset();
      throw;
    }
  }

  // Asks for a sum; its number.
  int64_t add_sum(at::Tensor flat, ReduceOp op) {
    throw_if_failed("all_reduce");
    waiting_.push_back({std::move(flat), op});
    return num_added_++;
  }

  // Sums that were asked for, up to and including number `last`.
  void carry_out(int64_t last) {
    throw_if_failed("all_reduce");
    guard([&] {
      for (; num_done_ <= last; ++num_done_) {
        const Sum sum = std::move(waiting_.front());
        waiting_.pop_front();
        Collectives(*group_).all_reduce(sum.flat, sum.op);
      }
    });
  }

  // All of them, then body(group).
  template <typename Body>
  void run(const char* operation, const Body& body) {
    throw_if_failed(operation);
    carry_out(num_added_ - 1);
    guard([&] {
      Collectives group(*group_);
      body(group);
    });
  }

  // call(network)
  template <typename Call>
  auto on_network(const char* operation, const Call& call) {
    throw_if_failed(operation);
    return guard([&] { return call(*network_); });
  }

 private:
  struct Sum {
    at::Tensor flat;
    ReduceOp op;
  };

  void throw_if_failed(const char* operation) const {
    if (group_ == nullptr) {
      throw CommunicationError(std::string(operation) +
                               ": this rank has left its peers");
    }
    group_->throw_if_failed(operation);
  }

  std::unique_ptr<Communicator> network_;
  std::unique_ptr<SharedGroup> group_;
  std::deque<Sum> waiting_;
  int64_t num_added_ = 0, num_done_ = 0;
};

class SumWork final : public Work {
 public:
  SumWork(std::shared_ptr<Connection> connection, int64_t number)
      : connection_(std::move(connection)), number_(number) {}
  void wait() override { connection_->carry_out(number_); }

 private:
  std::shared_ptr<Connection> connection_;
  const int64_t number_;
};

class NetworkWork final : public Work {
 public:
  NetworkWork(std::shared_ptr<Connection> connection,
              std::unique_ptr<Work> work)
      : connection_(std::move(connection)), work_(std::move(work)) {}
  void wait() override {
    connection_->guard([this] { work_->wait(); });
  }

 private:
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<Work> work_;
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<Communicator> network,
                           std::unique_ptr<SharedGroup> group,
                           std::chrono::milliseconds timeout)
      : rank_(network->rank()),
        size_(network->size()),
        timeout_(timeout),
        connection_(std::make_shared<Connection>(std::move(network),
                                                 std::move(group))) {}
  ~SharedMemoryCommunicator() override { connection_->leave(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    return std::make_unique<SumWork>(
        connection_, connection_->add_sum(flat_view(tensor), op));
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const at::Tensor whole = flat_view(output), part = flat_view(input);
    check_multiple(whole, part, size_);
    connection_->run("all_gather", [&](Collectives& group) {
      group.all_gather(whole, part);
    });
  }
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const at::Tensor whole = flat_view(input), part = flat_view(output);
    check_multiple(whole, part, size_);
    connection_->run("reduce_scatter", [&](Collectives& group) {
      group.reduce_scatter(part, whole);
    });
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    check_rank(root, size_);
    const at::Tensor flat = flat_view(tensor);
    connection_->run("broadcast",
                     [&](Collectives& group) { group.broadcast(flat, root); });
  }
  void barrier() override {
    connection_->run("barrier", [](Collectives& group) { group.barrier(); });
  }

  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    return std::make_unique<NetworkWork>(
        connection_, connection_->on_network("send", [&](Communicator& all) {
          return all.send_async(tensor, to);
        }));
  }
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    return std::make_unique<NetworkWork>(
        connection_, connection_->on_network("recv", [&](Communicator& all) {
          return all.recv_async(tensor, from);
        }));
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return connection_->on_network("split", [&](Communicator& all) {
      return share_memory(all.split(color, key), timeout_);
    });
  }

 private:
  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<Communicator> share_memory(
    std::unique_ptr<Communicator> network, std::chrono::milliseconds timeout) {
  if (network->size() == 1) return network;
  std::string reason;
  std::unique_ptr<SharedGroup> group =
      SharedGroup::connect(*network, timeout, reason);
  if (group == nullptr) {
    log::debug("sums go through the network: " + reason);
    return network;
  }
  return std::make_unique<SharedMemoryCommunicator>(std::move(network),
                                                    std::move(group), timeout);
}

}  // namespace headroom
