#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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
#include "parallel/collectives/network_collectives.h"
#include "parallel/collectives/network_group.h"
#include "parallel/collectives/tensor_port.h"

namespace headroom::collectives {
namespace {

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

class NetworkCommunicator final : public SocketCommunicator {
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
                   if (is_small_sum(flat, group.size())) {
                     reduce_by_doubling(group, flat, op);
                   } else {
                     reduce_around_ring(group, flat, op);
                   }
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
    auto ranks =
        std::make_unique<NetworkCommunicator>(std::move(members), options_);
    if (!machine_) return ranks;
    return share_memory(std::move(ranks), options_.timeout, *machine_);
  }

  void sum_by_machine(SharedGroup::Machines machines,
                      int64_t machine) override {
    machine_ = machine;
    const std::vector<int> partners = sum_partners(machines.leaders, rank());
    // A peer connects after the barrier, when this rank's port is open.
    const TensorPort::Opening opening(*members_.port);
    barrier();
    group_->use(std::move(machines), partners);
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
  std::optional<int64_t> machine_;  // set by sum_by_machine()
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
