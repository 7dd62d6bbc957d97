#include "parallel/collectives/backend.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/shared_collectives.h"
#include "parallel/collectives/shared_group.h"

namespace headroom::collectives {
namespace {

// State shared by the communicator and its asynchronous operations.
class Connection {
 public:
  Connection(std::unique_ptr<Communicator> network,
             std::unique_ptr<SharedGroup> group)
      : network_(std::move(network)), group_(std::move(group)) {}

  // Closes the connections, so that waiting peers and this rank's operations in
  // progress fail.
  void leave() {
    group_.reset();
    network_.reset();
  }

  // Any failure closes both connections to the peers.
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

  // Queues an all-reduce. Returns its number.
  int64_t add_sum(at::Tensor flat, ReduceOp op) {
    throw_if_failed("all_reduce");
    waiting_.push_back({std::move(flat), op});
    return num_added_++;
  }

  // Runs the queued all-reduces up to and including number `last`.
  void carry_out(int64_t last) {
    throw_if_failed("all_reduce");
    guard([&] {
      for (; num_done_ <= last; ++num_done_) {
        const Sum sum = std::move(waiting_.front());
        waiting_.pop_front();
        SharedCollectives(*group_, *buffers_).all_reduce(sum.flat, sum.op);
      }
    });
  }

  // Runs all queued all-reduces, then body(group).
  template <typename Body>
  void run(const char* operation, const Body& body) {
    throw_if_failed(operation);
    carry_out(num_added_ - 1);
    guard([&] {
      SharedCollectives group(*group_, *buffers_);
      body(group);
    });
  }

  // Returns an undefined tensor if a rank has no memory to share.
  at::Tensor make_buffer(int64_t count, at::ScalarType type) {
    throw_if_failed("zeros");
    return guard([&] { return buffers_->create(*network_, count, type); });
  }

  const std::shared_ptr<SharedBuffers>& buffers() const { return buffers_; }
  void adopt(std::shared_ptr<SharedBuffers> buffers) {
    buffers_ = std::move(buffers);
  }

  // Returns call(network).
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
  std::shared_ptr<SharedBuffers> buffers_ = std::make_shared<SharedBuffers>();
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
  at::Tensor zeros(int64_t count, at::ScalarType type) override {
    if (count == 0) return Communicator::zeros(count, type);
    at::Tensor buffer = connection_->make_buffer(count, type);
    return buffer.defined() ? buffer : Communicator::zeros(count, type);
  }
  std::shared_ptr<Buffers> buffers() const override {
    return connection_->buffers();
  }
  void adopt(std::shared_ptr<Buffers> buffers) override {
    if (auto shared = std::dynamic_pointer_cast<SharedBuffers>(buffers)) {
      connection_->adopt(std::move(shared));
    }
  }
  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const at::Tensor whole = flat_view(output), part = flat_view(input);
    check_multiple(whole, part, size_);
    connection_->run("all_gather", [&](SharedCollectives& group) {
      group.all_gather(whole, part);
    });
  }
  void all_gather_pieces(const at::Tensor& flat,
                         const std::vector<int64_t>& part_sizes) override {
    const bool is_shared =
        connection_->buffers()
            ->find(flat.data_ptr(), static_cast<int64_t>(flat.nbytes()))
            .has_value();
    if (!is_shared) return Communicator::all_gather_pieces(flat, part_sizes);
    connection_->run("all_gather", [&](SharedCollectives& group) {
      group.all_gather_pieces(flat, part_sizes);
    });
  }
  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const at::Tensor whole = flat_view(input), part = flat_view(output);
    check_multiple(whole, part, size_);
    connection_->run("reduce_scatter", [&](SharedCollectives& group) {
      group.reduce_scatter(part, whole);
    });
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    check_rank(root, size_);
    const at::Tensor flat = flat_view(tensor);
    connection_->run("broadcast", [&](SharedCollectives& group) {
      group.broadcast(flat, root);
    });
  }
  void barrier() override {
    connection_->run("barrier",
                     [](SharedCollectives& group) { group.barrier(); });
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
    std::unique_ptr<Communicator> network, std::chrono::milliseconds timeout,
    std::optional<int64_t> machine) {
  if (network->size() == 1) return network;
  const int64_t here = machine.value_or(memory_identity());
  std::string reason;
  SharedGroup::Machines machines =
      SharedGroup::connect(*network, here, timeout, reason);
  if (machines.leaders.size() == 1) {
    return std::make_unique<SharedMemoryCommunicator>(
        std::move(network), std::move(machines.here), timeout);
  }
  auto* const sockets = dynamic_cast<SocketCommunicator*>(network.get());
  if (machines.leaders.empty()) {
    log::debug("sums go through the network: " + reason);
  } else if (sockets != nullptr &&
             machines.leaders.size() < static_cast<size_t>(network->size())) {
    sockets->sum_by_machine(std::move(machines), here);
  }
  return network;
}

}  // namespace headroom::collectives
