#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"

#include <signal.h>
#include <torch/headeronly/version.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/peer_patience.h"
#include "parallel/base/peer_wait.h"
#include "parallel/collectives/backend_parts.h"
#include "parallel/collectives/gather.h"
#include "parallel/collectives/gloo_connection.h"
#include "parallel/collectives/tensor_port.h"

namespace headroom::collectives {
namespace {

using gloo_group::ClosableGroup;
using gloo_group::Connection;
using gloo_group::Device;
using gloo_group::GatheredStore;
using gloo_group::Group;
using gloo_group::IntroducedStore;
using gloo_group::IssueMessage;
using gloo_group::LazyPort;
using gloo_group::ParkedGroups;
using gloo_group::reason_of;
using gloo_group::RendezvousStore;
using gloo_group::unless_aborted;

// The stand-ins for Gloo's headers (gloo_stubs/) were written for this version.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11);
// They must not be mistaken for what Gloo makes: an empty Context that is only
// pointed to, and a Store that cannot be constructed.
static_assert(std::is_empty_v<gloo::Context>);
static_assert(std::is_abstract_v<gloo::rendezvous::Store>);
static_assert(std::is_polymorphic_v<gloo::transport::UnboundBuffer>);
static_assert(std::is_same_v<decltype(&gloo::Context::closeConnections),
                             void (gloo::Context::*)()>);

// Gloo writes to sockets that a dead peer may have closed; the default answer
// to that signal would end this process too.
void ignore_broken_pipes() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 &&
      action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<Connection> connection, const char* operation,
           c10::intrusive_ptr<c10d::Work> work, bool is_message)
      : connection_(std::move(connection)),
        operation_(operation),
        work_(std::move(work)),
        is_message_(is_message) {}

  void wait() override {
    connection_->complete(operation_, work_, is_message_);
  }

 private:
  std::shared_ptr<Connection> connection_;
  const char* operation_;
  c10::intrusive_ptr<c10d::Work> work_;
  const bool is_message_;
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

// How to build the groups of split() like the first one.
struct Origin {
  std::shared_ptr<KeyValueStore> store;
  std::string prefix;
  GlooOptions options;
  // Null until a group that does not connect lazily has introduced its ranks.
  std::shared_ptr<Device> device;
  TensorPort::Secret secret{};  // the first group's
};

// A group that connects lazily, whose ranks know each other's addresses.
struct Introduced {
  std::unique_ptr<LazyPort> port;
  std::vector<PortAddress> addresses;
};

std::shared_ptr<Device> listen_on(const std::string& hostname, bool is_lazy);
std::unique_ptr<Communicator> connect_group(
    Origin origin, int rank, int size, std::optional<Introduced> introduced);

// A secret of its own for each group, that no rank has to ask for. It keeps out
// the same strangers as the first group's, which it is made of.
TensorPort::Secret secret_of(const Origin& origin) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char letter : origin.prefix) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  TensorPort::Secret secret = origin.secret;
  for (size_t i = 0; i < sizeof(hash); ++i) {
    secret[i] ^= static_cast<char>(hash >> (8 * i));
  }
  return secret;
}

// An address in whole numbers: its length and its bytes.
using AddressRecord = std::array<int64_t, 4>;

AddressRecord record_of(const PortAddress& address) {
  AddressRecord record{static_cast<int64_t>(address.size())};
  HEADROOM_CHECK(address.size() <= sizeof(record) - sizeof(record[0]),
                 cat(address.size(), " bytes"));
  std::memcpy(&record[1], address.data(), address.size());
  return record;
}

PortAddress address_of(const AddressRecord& record) {
  HEADROOM_CHECK(
      record[0] >= 0 &&
          record[0] <= static_cast<int64_t>(sizeof(record) - sizeof(record[0])),
      cat(record[0], " bytes"));
  return {reinterpret_cast<const char*>(&record[1]),
          static_cast<size_t>(record[0])};
}

class GlooCommunicator final : public Communicator {
 public:
  // `port` is null for a group that is connected.
  GlooCommunicator(Origin origin, std::unique_ptr<LazyPort> port, Group group,
                   int rank, int size)
      : origin_(std::move(origin)),
        rank_(rank),
        size_(size),
        connection_(std::make_shared<Connection>(std::move(port),
                                                 std::move(group), rank, size,
                                                 origin_.options.timeout)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    std::vector<at::Tensor> tensors = {flat_view(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp =
        op == ReduceOp::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    return begin("all_reduce", [&](ClosableGroup& group) {
      return group.allreduce(tensors, options);
    });
  }

  // c10d's own all_gather and reduce_scatter allocate the larger tensor once
  // more, within the operation: a rank without room for it could no longer take
  // part.
  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    all_gather_async(output, input)->wait();
  }
  std::unique_ptr<Work> all_gather_async(const at::Tensor& output,
                                         const at::Tensor& input) override {
    const at::Tensor whole = flat_view(output);
    const at::Tensor part = flat_view(input);
    check_multiple(whole, part, size_);
    const int64_t size = part.numel();
    if (connection_->is_lazy() && size > 0) {
      return gather_around_ring(whole, part);
    }
    std::vector<std::unique_ptr<Work>> messages;
    for (int rank = 0; rank < size_ && size > 0; ++rank) {
      if (rank == rank_) continue;
      messages.push_back(recv_async(whole.narrow(0, rank * size, size), rank));
      messages.push_back(send_async(part, rank));
    }
    whole.narrow(0, rank_ * size, size).copy_(part);
    return std::make_unique<AllWorks>(std::move(messages));
  }
  bool gathers_in_background() const override { return true; }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const at::Tensor whole = flat_view(input);
    const at::Tensor part = flat_view(output);
    check_multiple(whole, part, size_);
    const int64_t size = part.numel();
    if (size == 0) return;
    all_reduce(whole);
    part.copy_(whole.narrow(0, rank_ * size, size));
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    check_rank(root, size_);
    std::vector<at::Tensor> tensors = {flat_view(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    begin("broadcast", [&](ClosableGroup& group) {
      return group.broadcast(tensors, options);
    })->wait();
  }

  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    check_rank(to, size_);
    return begin_message(
        "send", to,
        [tensors = std::vector<at::Tensor>{message_view(tensor)},
         to](ClosableGroup& group) mutable {
          return group.send(tensors, to, 0);
        });
  }

  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    check_rank(from, size_);
    return begin_message(
        "recv", from,
        [tensors = std::vector<at::Tensor>{message_view(tensor)},
         from](ClosableGroup& group) mutable {
          return group.recv(tensors, from, 0);
        });
  }

  void barrier() override {
    begin("barrier", [](ClosableGroup& group) {
      return group.barrier();
    })->wait();
  }

  void abandon() override { connection_->leave(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const SplitMembers members = split_members(*this, color, key);
    Origin origin = origin_;
    origin.prefix += cat("/split", num_splits_++, "/color", color);
    auto introduced = introduce(origin, members);
    return connect_group(std::move(origin), members.rank,
                         static_cast<int>(members.ranks.size()),
                         std::move(introduced));
  }

 private:
  // Ranks of a part that connects lazily tell each other their addresses over
  // this group: thousands ask the run's map for nothing. Collective.
  std::optional<Introduced> introduce(const Origin& origin,
                                      const SplitMembers& members) {
    const auto most = static_cast<size_t>(origin.options.full_mesh_up_to);
    if (static_cast<size_t>(members.largest) <= most) return std::nullopt;
    Introduced introduced;
    AddressRecord own{};
    if (members.ranks.size() > most) {
      introduced.port = std::make_unique<LazyPort>(
          listen_on(origin.options.hostname, /*is_lazy=*/true));
      TensorPort& port = introduced.port->device->port;
      port.expect(secret_of(origin));
      own = record_of(port.own_address());
    }
    const std::vector<AddressRecord> all = tell_all(*this, own);
    if (introduced.port == nullptr) return std::nullopt;
    for (const int rank : members.ranks) {
      introduced.addresses.push_back(
          address_of(all[static_cast<size_t>(rank)]));
    }
    introduced.port->device->port.admit(introduced.addresses);
    return introduced;
  }

  template <typename Call>
  std::unique_ptr<Work> begin(const char* operation, const Call& call) {
    const auto work = connection_->issue(operation, call);
    connection_->track(work, /*is_message=*/false);
    return std::make_unique<GlooWork>(connection_, operation, work, false);
  }
  std::unique_ptr<Work> begin_message(const char* operation, int peer,
                                      IssueMessage call) {
    const auto work =
        connection_->issue_message(operation, peer, std::move(call));
    connection_->track(work, /*is_message=*/true);
    return std::make_unique<GlooWork>(connection_, operation, work, true);
  }

  // Messages would connect each rank with each. A sum goes to neighbours only,
  // and one of bytes, of which all but one rank give zeros, changes no bit.
  std::unique_ptr<Work> gather_around_ring(const at::Tensor& whole,
                                           const at::Tensor& part) {
    const int64_t size = part.numel(), begin = rank_ * size;
    whole.narrow(0, 0, begin).zero_();
    whole.narrow(0, begin, size).copy_(part);
    whole.narrow(0, begin + size, whole.numel() - begin - size).zero_();
    return all_reduce_async(whole.view(at::kByte), ReduceOp::kSum);
  }

  const Origin origin_;
  const int rank_;
  const int size_;
  std::shared_ptr<Connection> connection_;
  int64_t num_splits_ = 0;
};

std::shared_ptr<Device> listen_on(const std::string& hostname, bool is_lazy) {
  try {
    return std::make_shared<Device>(hostname, is_lazy);
  } catch (const std::exception& error) {
    throw Error("gloo",
                "cannot listen on '" + hostname + "': " + reason_of(error),
                "give a name or address of this machine");
  }
}

// Every rank with every other, through the store.
Group connect_all(const Origin& origin, bool is_introduced, int rank, int size,
                  const c10::intrusive_ptr<ClosableGroup::Options>& options) {
  if (!is_introduced) {
    origin.device->port.introduce(*origin.store, origin.prefix, rank, size,
                                  origin.options.timeout);
  }
  const auto store = [&]() -> c10::intrusive_ptr<c10d::Store> {
    const std::chrono::milliseconds timeout = origin.options.timeout;
    if (size > GatheredStore::kMostRanks) {  // a wish of full_mesh_ranks
      return c10::make_intrusive<RendezvousStore>(origin.store, origin.prefix,
                                                  timeout);
    }
    return c10::make_intrusive<GatheredStore>(origin.store, origin.prefix, rank,
                                              size, timeout);
  }();
  return c10::make_intrusive<ClosableGroup>(store, rank, size, options);
}

// A barrier connects ranks whose distance is a power of two, and all that sums,
// broadcasts and barriers need: a lost peer is one whose connection can be cut.
Group connect_neighbours(
    const Origin& origin, TensorPort& port, std::vector<PortAddress> addresses,
    std::shared_ptr<const std::atomic<bool>> has_ended, int rank, int size,
    const c10::intrusive_ptr<ClosableGroup::Options>& options) {
  if (addresses.empty()) {
    addresses = port.introduce(*origin.store, origin.prefix, rank, size,
                               origin.options.timeout);
  }
  const auto group = c10::make_intrusive<ClosableGroup>(
      c10::make_intrusive<IntroducedStore>(
          std::move(addresses), std::move(has_ended), origin.options.timeout),
      rank, size, options);
  const auto barrier = [&] {
    const std::lock_guard lock(gloo_group::issue_mutex());
    return group->barrier();
  }();
  if (!barrier->wait()) throw std::runtime_error("aborted");
  return group;
}

std::unique_ptr<Communicator> connect_group(
    Origin origin, int rank, int size, std::optional<Introduced> introduced) {
  if (size == 1) return make_single_communicator();
  ParkedGroups::instance().release_finished();
  const bool is_lazy = size > origin.options.full_mesh_up_to;
  const bool is_introduced = !is_lazy && origin.device != nullptr;
  std::unique_ptr<LazyPort> port;
  std::vector<PortAddress> addresses;
  if (introduced) {
    port = std::move(introduced->port);
    addresses = std::move(introduced->addresses);
  } else {
    port = std::make_unique<LazyPort>(
        is_introduced ? origin.device
                      : listen_on(origin.options.hostname, is_lazy));
  }
  const std::shared_ptr<Device> device = port->device;
  if (!is_lazy) origin.device = device;
  // Gloo's own limit cannot wait for a peer that works; ours is before it.
  const auto options = c10d::ProcessGroupGloo::Options::create(
      PeerPatience::kMostLimits * origin.options.timeout);
  options->threads = origin.options.threads;
  options->devices.push_back(device->gloo);
  try {
    Group group = unless_aborted<Group>(
        [=, has_ended = port->has_ended] {
          return is_lazy
                     ? connect_neighbours(origin, device->port, addresses,
                                          has_ended, rank, size, options)
                     : connect_all(origin, is_introduced, rank, size, options);
        },
        origin.options.timeout);
    if (!is_lazy) port.reset();
    // A group that was split off has the first one's.
    if (origin.secret == TensorPort::Secret{}) {
      origin.secret = device->port.secret();
    }
    return std::make_unique<GlooCommunicator>(
        std::move(origin), std::move(port), std::move(group), rank, size);
  } catch (const std::exception& error) {
    // Who is left connecting meets nobody any more.
    if (port != nullptr) *port->has_ended = true;
    throw CommunicationError(
        cat("rank ", rank, " of ", size, ", connecting: ", reason_of(error)));
  }
}

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(
    std::shared_ptr<KeyValueStore> store, const std::string& prefix, int rank,
    int size, const GlooOptions& options) {
  check_rank(rank, size);
  ignore_broken_pipes();
  return connect_group({std::move(store), prefix, options, nullptr}, rank, size,
                       {});
}

}  // namespace headroom::collectives
