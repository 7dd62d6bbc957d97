// How gloo_communicator.cpp connects a group and ends it in order after a
// failure; included there only, because it needs the stand-ins for Gloo's
// headers.
#pragma once

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <c10/util/Exception.h>

#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/key_value_store.h"
#include "parallel/base/peer_patience.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/collectives/tensor_port.h"

namespace headroom::gloo_group {

// Gloo connects without most of what a store offers.
class ConnectingStore : public c10d::Store {
 public:
  using Store::Store;
  int64_t add(const std::string&, int64_t) override { refuse("add"); }
  bool deleteKey(const std::string&) override { refuse("deleteKey"); }
  bool check(const std::vector<std::string>&) override { refuse("check"); }
  int64_t getNumKeys() override { refuse("getNumKeys"); }

 protected:
  [[noreturn]] static void refuse(const char* what) {
    C10_THROW_ERROR(NotImplementedError,
                    std::string("the rendezvous map offers no ") + what);
  }
};

// A KeyValueStore as the c10d::Store that Gloo connects through.
class RendezvousStore final : public ConnectingStore {
 public:
  // Keys are put below `prefix`; waiting for one takes at most `timeout`.
  RendezvousStore(std::shared_ptr<KeyValueStore> store, std::string prefix,
                  std::chrono::milliseconds timeout)
      : ConnectingStore(timeout),
        store_(std::move(store)),
        prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<RendezvousStore>(store_, prefix_, getTimeout());
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->set(prefix_ + "/" + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const std::string value = store_->get(prefix_ + "/" + key, getTimeout());
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    wait(keys, getTimeout());
  }
  // Gloo's own time limits are five minutes; ours is the communicator's.
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) {
      store_->get(prefix_ + "/" + key, std::min(timeout, getTimeout()));
    }
  }

 private:
  std::shared_ptr<KeyValueStore> store_;
  const std::string prefix_;
};

// The same for all ranks of a group: each asks the map once for the records of
// all, which its rank 0 has gathered, and not once for each peer.
class GatheredStore final : public ConnectingStore {
 public:
  // A record grows with the ranks, and the map takes values up to 1 MiB: this
  // serves 256 ranks.
  static constexpr int kMostRanks = 256;

  GatheredStore(std::shared_ptr<KeyValueStore> store, std::string prefix,
                int rank, int size, std::chrono::milliseconds timeout)
      : ConnectingStore(timeout),
        store_(std::move(store)),
        prefix_(std::move(prefix)),
        rank_(rank),
        size_(size) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<GatheredStore>(store_, prefix_, rank_, size_,
                                              getTimeout());
  }
  // A rank sets its own record only, under a key that ends with its rank,
  // before it asks for others.
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    store_->set(prefix_ + "/" + key, std::string(value.begin(), value.end()));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const size_t family = key.rfind('/') + 1;
    if (records_.empty()) gather(prefix_ + "/" + key.substr(0, family));
    const std::string& record = records_.at(std::stoul(key.substr(family)));
    return {record.begin(), record.end()};
  }
  // get() waits.
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&,
            const std::chrono::milliseconds&) override {}

 private:
  void gather(const std::string& family) {
    constexpr size_t kLength = sizeof(uint32_t);
    const std::string all_key = family + "all";
    if (rank_ == 0) {
      std::string all;
      for (const std::string& record :
           store_->get_all(family, size_, getTimeout())) {
        const auto length = static_cast<uint32_t>(record.size());
        all.append(reinterpret_cast<const char*>(&length), kLength);
        all += record;
      }
      store_->set(all_key, all);
    }
    const std::string all = store_->get(all_key, getTimeout());
    for (size_t at = 0; at + kLength <= all.size();) {
      uint32_t length = 0;
      std::memcpy(&length, all.data() + at, kLength);
      records_.push_back(all.substr(at + kLength, length));
      at += kLength + length;
    }
    if (records_.size() != static_cast<size_t>(size_)) refuse("whole record");
  }

  const std::shared_ptr<KeyValueStore> store_;
  const std::string prefix_;
  const int rank_, size_;
  std::vector<std::string> records_;
};

// What a group that connects lazily has for a store: Gloo asks for a peer's
// record when it first sends or receives, and is told what
// TensorPort::introduce() found. The map of the run, whose keys go with the
// coordinator and the generation, is not asked.
class IntroducedStore final : public ConnectingStore {
 public:
  // `has_ended`: Gloo, asked to close the group, asks for all ranks that it has
  // never met, to connect with them first. It is told the highest address then,
  // for which a rank only waits.
  IntroducedStore(std::vector<collectives::PortAddress> addresses,
                  std::shared_ptr<const std::atomic<bool>> has_ended,
                  std::chrono::milliseconds timeout)
      : ConnectingStore(timeout),
        addresses_(std::move(addresses)),
        has_ended_(std::move(has_ended)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<IntroducedStore>(*this);
  }
  // A rank sets its own record only, before it asks for others.
  void set(const std::string&, const std::vector<uint8_t>& value) override {
    own_record_ = value;
  }
  // The key ends with the peer's rank.
  std::vector<uint8_t> get(const std::string& key) override {
    const size_t rank = std::stoul(key.substr(key.rfind('/') + 1));
    const collectives::PortAddress& address = addresses_.at(rank);
    return record_of(*has_ended_ ? std::string(address.size(), '\xff')
                                 : address);
  }
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&,
            const std::chrono::milliseconds&) override {}

 private:
  // Gloo's record of a rank (gloo/transport/tcp/context.cc): the length of the
  // host's name, the name, the length of the address, a sockaddr, and numbers
  // that a lazy group leaves alone. A peer's is the own with its address.
  std::vector<uint8_t> record_of(
      const collectives::PortAddress& address) const {
    std::vector<uint8_t> record = own_record_;
    size_t name_length = 0;
    if (record.size() >= sizeof(name_length)) {
      std::memcpy(&name_length, record.data(), sizeof(name_length));
    }
    const size_t place = 2 * sizeof(size_t) + name_length;
    sockaddr_storage name{};
    if (name_length > record.size() ||
        record.size() < place + sizeof(sockaddr_storage)) {
      refuse("record of the expected form");
    }
    std::memcpy(&name, record.data() + place, sizeof(name));
    const bool is_v4 = name.ss_family == AF_INET;
    const size_t address_size = is_v4 ? sizeof(in_addr) : sizeof(in6_addr);
    const size_t address_place = is_v4 ? offsetof(sockaddr_in, sin_addr)
                                       : offsetof(sockaddr_in6, sin6_addr);
    if (address.size() != address_size + sizeof(in_port_t)) {
      refuse("peer of the same address family");
    }
    static_assert(offsetof(sockaddr_in, sin_port) ==
                  offsetof(sockaddr_in6, sin6_port));
    std::memcpy(record.data() + place + address_place, address.data(),
                address_size);
    std::memcpy(record.data() + place + offsetof(sockaddr_in, sin_port),
                address.data() + address_size, sizeof(in_port_t));
    return record;
  }

  const std::vector<collectives::PortAddress> addresses_;
  const std::shared_ptr<const std::atomic<bool>> has_ended_;
  std::vector<uint8_t> own_record_;
};

// What Gloo listens with: for a group and those of its split(), or for a group
// alone that connects lazily, whose end is the end of Gloo's device.
struct Device {
  std::shared_ptr<gloo::transport::Device> gloo;
  collectives::TensorPort port;

  Device(const std::string& hostname, bool is_lazy)
      : port([&] {
          gloo = c10d::ProcessGroupGloo::createDeviceForHostname(hostname,
                                                                 is_lazy);
        }) {}
};

// What a group that connects lazily keeps: its own port, open for its ranks.
struct LazyPort {
  explicit LazyPort(std::shared_ptr<Device> of)
      : device(std::move(of)), opening(device->port) {}
  const std::shared_ptr<Device> device;
  const collectives::TensorPort::Opening opening;
  const std::shared_ptr<std::atomic<bool>> has_ended =
      std::make_shared<std::atomic<bool>>(false);
};

// c10d's flight recorder is one per process and registers new groups without a
// lock, which matters where ranks are threads.
inline std::mutex& issue_mutex() {
  static std::mutex mutex;
  return mutex;
}

// c10::Error appends a backtrace to what().
inline std::string reason_of(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    return c10_error->what_without_backtrace();
  }
  return error.what();
}

class ClosableGroup final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  // Resets the connections, so that every peer's operation fails at once.
  void close() {
    for (const auto& context : contexts_) {
      try {
        context->closeConnections();
      } catch (const std::exception&) {
        // An operation's time limit has closed all of them; Gloo refuses to
        // meet a rank then, which it does for a lazy group.
      }
    }
  }
};

using Group = c10::intrusive_ptr<ClosableGroup>;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// False where `holds` is not true within `limit`, as PeerPatience counts it.
template <typename Holds>
bool wait_for_peers(std::condition_variable& changed,
                    std::unique_lock<std::mutex>& lock,
                    std::optional<std::chrono::milliseconds> limit,
                    const Holds& holds) {
  constexpr std::chrono::milliseconds kLook(100);
  if (!limit) {
    changed.wait(lock, holds);
    return true;
  }
  PeerPatience patience(*limit, std::chrono::steady_clock::now());
  while (!changed.wait_for(lock, std::min(kLook, *limit), holds)) {
    if (patience.is_over(std::chrono::steady_clock::now(),
                         PeerNews::a_peer_works())) {
      return false;
    }
  }
  return true;
}

inline std::string timed_out(std::chrono::milliseconds limit) {
  return cat("timed out after ", limit.count(), " ms");
}

// What waits for peers inside Gloo cannot be aborted, and where one is lost it
// lasts until Gloo's own limit. It has a thread of its own, which is left to
// that where the loss is heard of or `limit` is over: `waiting` owns all that
// it uses.
template <typename Result>
Result unless_aborted(std::function<Result()> waiting,
                      std::optional<std::chrono::milliseconds> limit = {}) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_aborted = false;
    bool is_done = false;
    Result result;
    std::exception_ptr failure;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, waiting = std::move(waiting)]() mutable {
    Result result;
    std::exception_ptr failure;
    try {
      result = waiting();
    } catch (...) {
      failure = std::current_exception();
    }
    waiting = nullptr;
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(result);
    shared->failure = failure;
    shared->is_done = true;
    shared->changed.notify_all();
  }).detach();
  const PeerWait visible;
  const AbortableWait abortable([shared] {
    const std::lock_guard lock(shared->mutex);
    shared->is_aborted = true;
    shared->changed.notify_all();
  });
  std::unique_lock lock(shared->mutex);
  if (!wait_for_peers(shared->changed, lock, limit,
                      [&] { return shared->is_done || shared->is_aborted; })) {
    throw std::runtime_error(timed_out(*limit));
  }
  if (!shared->is_done) throw std::runtime_error("aborted: a peer is lost");
  if (shared->failure) std::rethrow_exception(shared->failure);
  return std::move(shared->result);
}

// Owns its tensors and is called once.
using IssueMessage =
    std::function<c10::intrusive_ptr<c10d::Work>(ClosableGroup&)>;

inline void forget_completed(Works& works) {
  std::erase_if(works, [](const auto& work) { return work->isCompleted(); });
}

// Closed groups that have a collective under way. It cannot be aborted and
// fails only at its time limit, which the group's destructor waits for; that
// must not hold up recovery.
//
// Threads: any. Never destroyed: what is left at exit would delay it.
class ParkedGroups {
 public:
  static ParkedGroups& instance() {
    static auto* const groups = new ParkedGroups;
    return *groups;
  }

  void park(c10::intrusive_ptr<ClosableGroup> group, Works under_way) {
    release_finished();
    std::lock_guard<std::mutex> lock(mutex_);
    parked_.push_back({std::move(group), std::move(under_way)});
  }

  void release_finished() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(parked_, [](Parked& one) {
      forget_completed(one.under_way);
      return one.under_way.empty();
    });
  }

 private:
  struct Parked {
    c10::intrusive_ptr<ClosableGroup> group;
    Works under_way;
  };
  std::mutex mutex_;
  std::vector<Parked> parked_;  // guarded by mutex_
};

// What a communicator shares with its operations under way.
class Connection {
 public:
  // `port` is that of a group that connects lazily, else null.
  Connection(std::unique_ptr<LazyPort> port, Group group, int rank, int size,
             std::chrono::milliseconds timeout)
      : port_(std::move(port)),
        group_(std::move(group)),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        is_connected_(static_cast<size_t>(size), !is_lazy()) {}

  // Peers still wait for what was begun here and will never be completed.
  ~Connection() {
    forget_completed(under_way_);
    if (under_way_.empty() && messages_.empty()) return;
    close();
    // A message ends with its object, and only somebody who waits for it could
    // complete it: parked, its tensor would stay for good.
    messages_.clear();
    if (under_way_.empty()) return;
    ParkedGroups::instance().park(std::move(group_), std::move(under_way_));
  }

  bool is_lazy() const { return port_ != nullptr; }

  // Ends the group for its peers at once, also while this rank holds operations
  // of it that have not ended.
  void leave() {
    if (failure_.empty()) failure_ = "this rank left its peers";
    close();
  }

  template <typename Call>
  c10::intrusive_ptr<c10d::Work> issue(const char* operation,
                                       const Call& call) {
    return guard(operation, [&] {
      std::lock_guard<std::mutex> lock(issue_mutex());
      return c10::intrusive_ptr<c10d::Work>(call(*group_));
    });
  }

  // A lazy group's first message between two ranks waits until both have begun
  // one. The peer may need the lock for that; nothing is registered any more,
  // since the group has met in a barrier.
  c10::intrusive_ptr<c10d::Work> issue_message(const char* operation, int peer,
                                               IssueMessage call) {
    if (is_connected_[static_cast<size_t>(peer)]) return issue(operation, call);
    return guard(operation, [&] {
      auto work = unless_aborted<c10::intrusive_ptr<c10d::Work>>(
          [group = group_, call = std::move(call)] { return call(*group); },
          timeout_);
      is_connected_[static_cast<size_t>(peer)] = true;
      return work;
    });
  }

  void track(const c10::intrusive_ptr<c10d::Work>& work, bool is_message) {
    forget_completed(under_way_);
    (is_message ? messages_ : under_way_).push_back(work);
  }

  // Waits for a tracked operation and releases its tensor at once.
  void complete(const char* operation,
                const c10::intrusive_ptr<c10d::Work>& work, bool is_message) {
    guard(operation, [&] {
      if (!is_message) await_end_or_loss(*work);
      const AbortableWait abortable(
          [&] {
            if (!abortable.is_late()) {
              collectives::TensorPort::cut_connections();
            }
            // A part may have come, whose rest Gloo would wait for.
            if (is_message) work->abort();
          },
          is_message ? std::optional(timeout_) : std::nullopt);
      if (!work->wait(kNoTimeout)) {
        throw std::runtime_error(abortable.is_late() ? timed_out(timeout_)
                                                     : "aborted");
      }
    });
    std::erase(under_way_, work);
    std::erase(messages_, work);
  }

 private:
  // A failure of whatever kind ends the group.
  template <typename Call>
  std::invoke_result_t<const Call&> guard(const char* operation,
                                          const Call& call) {
    if (!failure_.empty()) throw_failure(operation);
    try {
      return call();
    } catch (const std::exception& error) {
      failure_ = reason_of(error);
      close();
      throw_failure(operation);
    }
  }

  // Gloo cannot abort a collective: it fails with its connections. But one that
  // finds its connection broken as it begins to write is forgotten (in Gloo's
  // Pair::handleRemotePendingRecv). It is left alone where a peer is lost, once
  // nothing more can come for its tensors.
  void await_end_or_loss(c10d::Work& work) {
    struct Shared {
      std::mutex mutex;
      std::condition_variable changed;
      bool is_done = false;
      bool is_aborted = false;
    };
    const auto shared = std::make_shared<Shared>();
    work.getFuture()->addCallback([shared](c10::ivalue::Future&) {
      const std::lock_guard lock(shared->mutex);
      shared->is_done = true;
      shared->changed.notify_all();
    });
    const AbortableWait abortable([shared] {
      collectives::TensorPort::cut_connections();
      const std::lock_guard lock(shared->mutex);
      shared->is_aborted = true;
      shared->changed.notify_all();
    });
    std::unique_lock lock(shared->mutex);
    const bool is_late = !wait_for_peers(shared->changed, lock, timeout_, [&] {
      return shared->is_done || shared->is_aborted;
    });
    constexpr std::chrono::milliseconds kPatience(500);
    const auto ends_soon = [&] {
      return shared->changed.wait_for(lock, kPatience,
                                      [&] { return shared->is_done; });
    };
    if (ends_soon()) return;
    lock.unlock();
    close();
    lock.lock();
    // One that still computes ends within it.
    ends_soon();
    throw std::runtime_error(is_late ? timed_out(timeout_)
                                     : "aborted: a peer is lost");
  }

  // Peers' operations fail at once.
  void close() {
    if (is_lazy()) {
      *port_->has_ended = true;
      port_->device->port.end_group();
    }
    group_->close();
  }

  [[noreturn]] void throw_failure(const char* operation) const {
    throw CommunicationError(
        cat("rank ", rank_, " of ", size_, ", ", operation, ": ", failure_));
  }

  const std::unique_ptr<LazyPort> port_;
  Group group_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  std::vector<bool> is_connected_;  // index: the rank
  Works under_way_;                 // all but messages
  Works messages_;
  std::string failure_;
};

}  // namespace headroom::gloo_group
