// Agents and workers that send a coordinator the same messages as real ones.
// Thousands of them run in one process, each with its own connection
// (coordinator_load.cpp).
//
// Threads: those of gRPC and one for timers. A caller must outlive its calls
// that are in progress.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/reports.h"
#include "proto/version.h"

namespace headroom {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Stub = wire::Coordinator::Stub;

inline constexpr int kWorkersOfNode = 8;

// Runs each callback at its time, in one thread.
class Timers {
 public:
  Timers() : thread_([this] { run(); }) {}
  ~Timers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void after(milliseconds pause, std::function<void()> action) {
    const std::lock_guard lock(mutex_);
    const auto entry = due_.emplace(Clock::now() + pause, std::move(action));
    if (entry == due_.begin()) changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      if (due_.empty()) {
        changed_.wait(lock);
      } else if (Clock::now() < due_.begin()->first) {
        changed_.wait_until(lock, due_.begin()->first);
      } else {
        const auto action = std::move(due_.extract(due_.begin()).mapped());
        lock.unlock();
        action();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::function<void()>> due_;
  bool ending_ = false;
  std::thread thread_;
};

// The state shared by all members of a run.
struct Load {
  std::string address;
  std::string run_digest;
  std::atomic<int64_t> answers = 0;
  // Heartbeats that agents sent for their workers.
  std::atomic<int64_t> beats = 0;
  std::atomic<int> met = 0;  // workers that formed the newest generation
  std::atomic<int64_t> exchanges = 0;  // all requests to the run's map
  std::atomic<int> watching = 0;
  std::atomic<int64_t> refusals = 0;
  std::atomic<bool> is_ending = false;
  std::mutex mutex;  // guards changes of one member
  std::string last_refusal;
  Timers timers;
};

// A process that calls the coordinator.
class Caller {
 public:
  Caller(Load& load, const wire::MemberIdentity& identity)
      : load_(load),
        stub_(wire::Coordinator::NewStub(
            wire::make_channel(load.address, {}, identity))) {}
  virtual ~Caller() = default;

  void kill() { is_dead_ = true; }
  bool is_silent() const { return is_dead_ || load_.is_ending; }

 protected:
  template <typename Request, typename Response>
  using Method = void (Stub::async::*)(grpc::ClientContext*, const Request*,
                                       Response*,
                                       std::function<void(grpc::Status)>);

  // `then` gets the reply, or null if the call was refused. A call without a
  // reply is repeated.
  template <typename Request, typename Response>
  void call(Method<Request, Response> method, const Request& request,
            milliseconds timeout,
            std::function<void(const Response*)> then = nullptr) {
    struct Call {
      grpc::ClientContext context;
      Request request;
      Response response;
    };
    if (is_silent()) return;
    auto made = std::make_shared<Call>();
    made->request = request;
    made->context.set_wait_for_ready(true);
    made->context.set_deadline(std::chrono::system_clock::now() + timeout);
    (stub_->async()->*method)(
        &made->context, &made->request, &made->response,
        [this, made, method, timeout, then](const grpc::Status& status) {
          if (is_silent()) return;
          ++load_.answers;
          if (status.ok()) {
            if (then) then(&made->response);
            return;
          }
          if (!wire::is_unreachable(status)) {
            {
              ++load_.refusals;
              const std::lock_guard lock(load_.mutex);
              load_.last_refusal = status.error_message();
            }
            if (then) then(nullptr);
            return;
          }
          load_.timers.after(milliseconds(100),
                             [this, made, method, timeout, then] {
                               call(method, made->request, timeout, then);
                             });
        });
  }

  Load& load_;
  const std::unique_ptr<Stub> stub_;
  std::atomic<bool> is_dead_ = false;
};

class LoadWorker;

class WatchStream final : public grpc::ClientReadReactor<wire::Assignment> {
 public:
  WatchStream(LoadWorker& worker, Stub& stub,
              const wire::WatchRequest& request);
  void cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  LoadWorker& worker_;
  const wire::WatchRequest request_;
  grpc::ClientContext context_;
  wire::Assignment message_;
};

class LoadWorker final : public Caller {
 public:
  LoadWorker(Load& load, const wire::MemberIdentity& identity)
      : Caller(load, identity), identity_(identity) {
    watch();
  }

  const std::string& id() const { return identity_.worker_id; }
  int rank() const { return rank_; }

  // Fills the worker's heartbeat for the agent. Returns false before the worker
  // is registered.
  bool beat(wire::WorkerBeat& beat) {
    constexpr int64_t kAgeMs = 100;
    const std::lock_guard lock(mutex_);
    if (is_silent() || stamp_.run_digest().empty()) return false;
    beat.set_worker_id(identity_.worker_id);
    beat.set_generation(stamp_.generation());
    if (rank_ >= 0) *beat.mutable_progress() = progress();
    beat.set_age_ms(kAgeMs);
    return true;
  }

  // Reports that the worker's collective failed; the worker then waits for the
  // next generation.
  void complain() {
    wire::ReportFailureRequest request;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(has_complained_, true) || rank_ < 0) return;
      *request.mutable_stamp() = stamp_;
      request.set_committed_steps(steps_);
    }
    request.set_worker_id(identity_.worker_id);
    request.set_exit_code(5);
    request.set_message("[communication] a peer is lost");
    request.set_kind(static_cast<int>(wire::FailureKind::kLostPeer));
    call<wire::ReportFailureRequest, wire::ReportFailureResponse>(
        &Stub::async::ReportFailure, request, kTimeout);
  }

  // Ends the worker as SIGKILL would.
  void die() {
    kill();
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->cancel();
  }

  void watch() {
    const std::lock_guard lock(mutex_);
    if (is_silent()) return;
    wire::WatchRequest request;
    request.set_version(wire::kVersion);
    request.set_node_id(identity_.node_id);
    request.set_worker_id(identity_.worker_id);
    request.set_advertise_host("127.0.0.1");
    request.set_last_order(last_order_);
    stream_ = new WatchStream(*this, *stub_, request);
  }

  void note_read(const wire::Assignment& message) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_watching_, true)) ++load_.watching;
    stamp_.set_run_digest(message.stamp().run_digest());
    if (message.action() != wire::ACTION_RUN) return;
    last_order_ = message.order();
    stamp_.set_generation(message.stamp().generation());
    has_complained_ = false;
    rank_ = message.rank();
    world_size_ = message.world_size();
    meet();
  }

  void note_end(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    if (std::exchange(is_watching_, false)) --load_.watching;
    if (is_silent()) return;
    if (!status.ok() && !wire::is_unreachable(status)) {
      ++load_.refusals;
      const std::lock_guard words(load_.mutex);
      load_.last_refusal = status.error_message();
    }
    load_.timers.after(milliseconds(100), [this] { watch(); });
  }

  void commit(int64_t step) {
    wire::CommitRequest request;
    {
      const std::lock_guard lock(mutex_);
      steps_ = step;
      *request.mutable_stamp() = stamp_;
    }
    request.set_step(step);
    *request.mutable_progress() = progress();
    call<wire::CommitRequest, wire::CommitResponse>(&Stub::async::Commit,
                                                    request, kTimeout);
  }

 private:
  static constexpr milliseconds kTimeout{5000};

  wire::Progress progress() const {
    wire::Progress progress;
    progress.set_step(steps_);
    progress.set_num_steps(100'000);
    progress.mutable_losses()->set_first(0.05);
    progress.set_images_per_second(1000);
    progress.set_measured_peak_bytes(int64_t{1} << 30);
    progress.set_median_step_ms(100);
    return progress;
  }

  // --- the generation's keys ------------------------------------------------
  // The requests that a worker makes to the run's map until it can train, one
  // after another. They are the requests of generation_loop.cpp, and those of
  // tensor_port.h, by which the ranks find each other. The ranks exchange all
  // other information directly.
  struct Exchange {
    enum class Kind { kPublish, kLookUp, kGather };
    Kind kind = Kind::kPublish;
    std::string key;
    std::string value = {};
  };

  std::deque<Exchange> exchanges() const {
    using Kind = Exchange::Kind;
    const std::string own = std::to_string(rank_);
    const auto size = static_cast<size_t>(world_size_);
    const bool is_first = rank_ == 0;
    std::deque<Exchange> all;
    const auto gather = [&](const std::string& family, const std::string& whole,
                            size_t bytes) {
      all.push_back({Kind::kPublish, family + own, std::string(bytes, 'b')});
      if (is_first) {
        all.push_back({Kind::kGather, family});
        all.push_back({Kind::kPublish, whole, std::string(size * bytes, 'b')});
      }
      all.push_back({Kind::kLookUp, whole});
    };
    all.push_back({Kind::kPublish, "here/" + own, std::string(19, '7')});
    if (is_first) {
      all.push_back({Kind::kPublish, "ranks/secret", std::string(32, 's')});
    }
    all.push_back({Kind::kLookUp, "ranks/secret"});
    gather("ranks/port/", "ranks/ports", 17);
    return all;
  }

  // REQUIRES: the mutex is held.
  void meet() {
    ++meeting_;
    exchange(std::make_shared<std::deque<Exchange>>(exchanges()), meeting_);
  }

  // Makes the next request; replies of an earlier generation are ignored.
  void exchange(const std::shared_ptr<std::deque<Exchange>>& left,
                int64_t meeting) {
    const std::lock_guard lock(mutex_);
    if (meeting != meeting_) return;
    if (left->empty()) {
      ++load_.met;
      return;
    }
    const Exchange next = left->front();
    left->pop_front();
    ++load_.exchanges;
    const auto then = [this, left, meeting] { exchange(left, meeting); };
    if (next.kind == Exchange::Kind::kPublish) {
      publish(next.key, next.value, then);
    } else {
      look_up(next.key, then,
              next.kind == Exchange::Kind::kGather ? world_size_.load() : 0);
    }
  }

  void publish(const std::string& key, const std::string& value,
               std::function<void()> then) {
    wire::PublishRequest request;
    *request.mutable_stamp() = stamp_;
    request.set_key(key);
    request.set_value(value);
    call<wire::PublishRequest, wire::PublishResponse>(
        &Stub::async::Publish, request, kTimeout,
        [then = std::move(then)](const wire::PublishResponse* answer) {
          if (answer != nullptr) then();
        });
  }

  void look_up(const std::string& key, std::function<void()> then,
               int count = 0) {
    wire::LookupRequest request;
    *request.mutable_stamp() = stamp_;
    request.set_key(key);
    request.set_timeout_ms(10'000);
    request.set_count(count);
    call<wire::LookupRequest, wire::LookupResponse>(
        &Stub::async::Lookup, request, milliseconds(15'000),
        [this, key, count,
         then = std::move(then)](const wire::LookupResponse* answer) {
          if (answer == nullptr) return;
          answer->found() ? then() : look_up(key, then, count);
        });
  }

  const wire::MemberIdentity identity_;
  std::recursive_mutex mutex_;
  WatchStream* stream_ = nullptr;
  wire::Stamp stamp_;
  int64_t last_order_ = 0;
  int64_t meeting_ = 0;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<int> rank_ = -1;
  std::atomic<int> world_size_ = 0;
  bool is_watching_ = false;
  bool has_complained_ = false;
};

inline WatchStream::WatchStream(LoadWorker& worker, Stub& stub,
                                const wire::WatchRequest& request)
    : worker_(worker), request_(request) {
  stub.async()->Watch(&context_, &request_, this);
  StartRead(&message_);
  StartCall();
}

inline void WatchStream::OnReadDone(bool ok) {
  if (!ok) return;
  worker_.note_read(message_);
  StartRead(&message_);
}

inline void WatchStream::OnDone(const grpc::Status& status) {
  worker_.note_end(status);
  delete this;
}

class LoadAgent final : public Caller {
 public:
  LoadAgent(Load& load, const std::string& node_id, const std::string& secret)
      : Caller(load, {.node_id = node_id, .worker_id = "", .secret = secret}),
        node_id_(node_id),
        secret_(secret) {
    for (int slot = 0; slot < kWorkersOfNode; ++slot) {
      names_.push_back(node_id + "-" + std::to_string(slot));
    }
    register_node([this] {
      for (int slot = 0; slot < kWorkersOfNode; ++slot) start_worker(slot);
      say_alive();
    });
  }

  // Breaks the connection of the worker, and makes the agent report its exit.
  void lose_worker(int slot) {
    workers_[static_cast<size_t>(slot)]->die();
    wire::ReportExitRequest request;
    request.mutable_stamp()->set_run_digest(load_.run_digest);
    request.set_node_id(node_id_);
    request.set_worker_id(names_[static_cast<size_t>(slot)]);
    request.set_exit_code(128 + SIGKILL);
    call<wire::ReportExitRequest, wire::ReportExitResponse>(
        &Stub::async::ReportExit, request, milliseconds(5000),
        [this, slot](const wire::ReportExitResponse* answer) {
          if (answer == nullptr || !answer->restart()) return;
          load_.timers.after(milliseconds(answer->delay_ms()), [this, slot] {
            names_[static_cast<size_t>(slot)] += ".1";
            register_node([this, slot] { start_worker(slot); });
          });
        });
  }

  LoadWorker& worker(int slot) { return *workers_[static_cast<size_t>(slot)]; }

 private:
  void register_node(std::function<void()> then) {
    wire::RegisterRequest request;
    request.set_version(wire::kVersion);
    request.set_node_id(node_id_);
    request.set_hostname("host-" + node_id_);
    for (const std::string& name : names_) request.add_worker_ids(name);
    call<wire::RegisterRequest, wire::RegisterResponse>(
        &Stub::async::Register, request, milliseconds(3000),
        [this, then = std::move(then)](const wire::RegisterResponse* answer) {
          if (answer == nullptr) return;
          {
            const std::lock_guard lock(load_.mutex);
            load_.run_digest = answer->run_digest();
          }
          then();
        });
  }

  void start_worker(int slot) {
    const std::string& name = names_[static_cast<size_t>(slot)];
    auto worker = std::make_unique<LoadWorker>(
        load_, wire::MemberIdentity{node_id_, name,
                                    wire::secret_of_worker(secret_, name)});
    const std::lock_guard lock(mutex_);
    workers_[static_cast<size_t>(slot)].swap(worker);
    if (worker) dead_.push_back(std::move(worker));
  }

  void say_alive() {
    wire::HeartbeatRequest request;
    request.mutable_stamp()->set_run_digest(load_.run_digest);
    request.set_node_id(node_id_);
    {
      const std::lock_guard lock(mutex_);
      for (const auto& worker : workers_) {
        wire::WorkerBeat beat;
        if (worker && worker->beat(beat)) {
          *request.add_beats() = std::move(beat);
        }
      }
    }
    load_.beats += request.beats_size();
    call<wire::HeartbeatRequest, wire::HeartbeatResponse>(
        &Stub::async::Heartbeat, request, milliseconds(5000),
        [this](const wire::HeartbeatResponse* answer) {
          if (answer != nullptr && answer->peer_lost()) {
            const std::lock_guard lock(mutex_);
            for (const auto& worker : workers_) worker->complain();
          }
          load_.timers.after(wire::kHeartbeatInterval, [this] { say_alive(); });
        });
  }

  const std::string node_id_;
  const std::string secret_;
  std::vector<std::string> names_;
  std::mutex mutex_;  // guards workers_
  std::unique_ptr<LoadWorker> workers_[kWorkersOfNode];
  std::vector<std::unique_ptr<LoadWorker>> dead_;
};

}  // namespace headroom
