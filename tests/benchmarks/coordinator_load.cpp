// What a coordinator bears: thousands of agents and workers in one process,
// each with a connection of its own, that say what real ones say.
//
//   build/bin/benchmark_coordinator_load [--workers 64,512,4096] [--seconds 10]
//
// Starts `headroom coordinator` as a user would, on core 0; this process keeps
// to core 1. Agents of 8 workers register, workers join, and each exchanges the
// keys with which ranks introduce themselves (worker/run, tensor_port.h). What
// Gloo then asks of each pair of ranks is not asked: NCCL does not.
//
//   forms     from the first registration until all have met in generation 1
//   calls     answered per second while all say that they live and rank 0
//             commits ten steps a second
//   re-forms  from the death of 1 % until all have met in generation 2
//   returns   from the coordinator's death until all follow its successor
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/version.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Stub = wire::Coordinator::Stub;

constexpr int kWorkersOfNode = 8;
constexpr int kCoordinatorsCore = 0, kOwnCore = 1;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void keep_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof(cores), &cores);
}

// Calls what is due, from one thread.
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

// What all members of a run share.
struct Load {
  std::string address;
  std::string run_digest;
  std::atomic<int64_t> answers = 0;
  std::atomic<int> met = 0;  // in the newest generation
  std::atomic<int> watching = 0;
  std::atomic<int64_t> refusals = 0;
  std::atomic<bool> is_ending = false;
  std::mutex mutex;  // of what one member changes
  std::string last_refusal;
  Timers timers;
};

// A process that speaks to the coordinator.
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

  // `then` gets what was answered; null: it was refused. A call without an
  // answer is made again.
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
    say_alive();
  }

  const std::string& id() const { return identity_.worker_id; }
  int rank() const { return rank_; }

  // As when it gets SIGKILL.
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
    progress.set_box(0.05);
    progress.set_images_per_second(1000);
    progress.set_measured_peak_bytes(int64_t{1} << 30);
    progress.set_median_step_ms(100);
    return progress;
  }

  void say_alive() {
    wire::HeartbeatRequest request;
    {
      const std::lock_guard lock(mutex_);
      *request.mutable_stamp() = stamp_;
      if (rank_ >= 0) *request.mutable_progress() = progress();
    }
    request.set_node_id(identity_.node_id);
    request.set_worker_id(identity_.worker_id);
    if (request.stamp().run_digest().empty()) {  // not welcomed yet
      load_.timers.after(wire::kHeartbeatInterval, [this] { say_alive(); });
      return;
    }
    call<wire::HeartbeatRequest, wire::HeartbeatResponse>(
        &Stub::async::Heartbeat, request, kTimeout,
        [this](const wire::HeartbeatResponse* answer) {
          if (answer != nullptr && answer->peer_lost()) complain();
          load_.timers.after(wire::kHeartbeatInterval, [this] { say_alive(); });
        });
  }

  // Its collective failed; it waits for the next generation.
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
    request.set_peer_lost(true);
    call<wire::ReportFailureRequest, wire::ReportFailureResponse>(
        &Stub::async::ReportFailure, request, kTimeout);
  }

  // --- the generation's keys: from worker/run and tensor_port.h --------------
  // The mutex is held.
  void meet() {
    const std::string own = std::to_string(rank_);
    publish("here/" + own, "", [this, own] {
      const auto learn_secret = [this, own] {
        look_up("ranks/secret", [this, own] {
          publish("ranks/port/" + own, "123456", [this] { learn_ports(); });
        });
      };
      if (own == "0") {
        publish("ranks/secret", std::string(32, 's'), learn_secret);
      } else {
        learn_secret();
      }
    });
  }

  void learn_ports() {
    if (rank_ == 0) {
      gather_ports(0);
    } else {
      look_up("ranks/ports", [this] { ++load_.met; });
    }
  }

  // Rank 0 hands all of them on in one piece.
  void gather_ports(int rank) {
    if (rank < world_size_) {
      look_up("ranks/port/" + std::to_string(rank),
              [this, rank] { gather_ports(rank + 1); });
      return;
    }
    publish("ranks/ports", std::string(static_cast<size_t>(rank) * 7, 'p'),
            [this] { ++load_.met; });
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

  void look_up(const std::string& key, std::function<void()> then) {
    wire::LookupRequest request;
    *request.mutable_stamp() = stamp_;
    request.set_key(key);
    request.set_timeout_ms(10'000);
    call<wire::LookupRequest, wire::LookupResponse>(
        &Stub::async::Lookup, request, milliseconds(15'000),
        [this, key,
         then = std::move(then)](const wire::LookupResponse* answer) {
          if (answer == nullptr) return;
          answer->found() ? then() : look_up(key, then);
        });
  }

  const wire::MemberIdentity identity_;
  std::recursive_mutex mutex_;
  WatchStream* stream_ = nullptr;
  wire::Stamp stamp_;
  int64_t last_order_ = 0;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<int> rank_ = -1;
  std::atomic<int> world_size_ = 0;
  bool is_watching_ = false;
  bool has_complained_ = false;
};

WatchStream::WatchStream(LoadWorker& worker, Stub& stub,
                         const wire::WatchRequest& request)
    : worker_(worker), request_(request) {
  stub.async()->Watch(&context_, &request_, this);
  StartRead(&message_);
  StartCall();
}

void WatchStream::OnReadDone(bool ok) {
  if (!ok) return;
  worker_.note_read(message_);
  StartRead(&message_);
}

void WatchStream::OnDone(const grpc::Status& status) {
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

  // The connection of that worker breaks, and the agent reports its end.
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
  bool has_started() const { return num_started_ == kWorkersOfNode; }

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
    workers_[static_cast<size_t>(slot)].swap(worker);
    if (worker) dead_.push_back(std::move(worker));
    ++num_started_;
  }

  void say_alive() {
    wire::HeartbeatRequest request;
    request.mutable_stamp()->set_run_digest(load_.run_digest);
    request.set_node_id(node_id_);
    call<wire::HeartbeatRequest, wire::HeartbeatResponse>(
        &Stub::async::Heartbeat, request, milliseconds(5000),
        [this](const wire::HeartbeatResponse*) {
          load_.timers.after(wire::kHeartbeatInterval, [this] { say_alive(); });
        });
  }

  const std::string node_id_;
  const std::string secret_;
  std::vector<std::string> names_;
  std::unique_ptr<LoadWorker> workers_[kWorkersOfNode];
  std::vector<std::unique_ptr<LoadWorker>> dead_;
  std::atomic<int> num_started_ = 0;
};

// --- the coordinator, as a user starts it ------------------------------------

class CoordinatorProcess {
 public:
  CoordinatorProcess(const fs::path& folder, int workers, int port)
      : folder_(folder), workers_(workers), port_(port) {}
  ~CoordinatorProcess() { kill(); }

  void start() {
    std::vector<std::string> words = {
        (fs::read_symlink("/proc/self/exe").parent_path() / "headroom")
            .string(),
        "coordinator",
        "--listen",
        address(),
        "--expected-workers",
        std::to_string(workers_),
        "--synthetic-input",
        "--cfg",
        "yolov5n",
        "--batch",
        std::to_string(16 * workers_),
        "--run-directory",
        (folder_ / "run").string(),
        "--log",
        (folder_ / "log").string()};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ > 0) return;
    keep_to_core(kCoordinatorsCore);
    (void)!std::freopen((folder_ / "stdout.txt").c_str(), "a", stdout);
    (void)!std::freopen((folder_ / "stderr.txt").c_str(), "a", stderr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  double mebibytes() const { return number_of("/status", "VmRSS:") / 1024; }
  // Of a core, since it was started.
  double processor_seconds() const { return processor_seconds(pid_); }
  static double processor_seconds(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string word;
    double ticks = 0;
    for (int i = 0; i < 13 && fields >> word; ++i) {
      if (i >= 11) ticks += std::stod(word);
    }
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  double number_of(const std::string& file, const std::string& name) const {
    std::ifstream in("/proc/" + std::to_string(pid_) + file);
    for (std::string word; in >> word;) {
      if (word != name) continue;
      double number = 0;
      in >> number;
      return number;
    }
    return 0;
  }

  const fs::path folder_;
  const int workers_;
  const int port_;
  pid_t pid_ = -1;
};

// --- the measurement
// ----------------------------------------------------------

bool wait_for(const std::function<bool()>& holds, double seconds) {
  const Clock::time_point begin = Clock::now();
  while (!holds()) {
    if (seconds_since(begin) > seconds) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

void measure(int workers, double seconds, int port, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  CoordinatorProcess coordinator(folder, workers, port);
  coordinator.start();
  Load load;
  load.address = coordinator.address();
  {
    auto channel = wire::make_channel(load.address);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() +
                                   std::chrono::seconds(20))) {
      std::fprintf(stderr, "no coordinator: see %s\n", folder.c_str());
      return;
    }
  }
  const auto say_refusals = [&](const char* when) {
    if (load.refusals == 0) return;
    const std::lock_guard lock(load.mutex);
    std::fprintf(stderr, "%d workers, %s: %lld refusals, the last: %s\n",
                 workers, when, static_cast<long long>(load.refusals),
                 load.last_refusal.c_str());
    load.refusals = 0;
  };

  const Clock::time_point begin = Clock::now();
  const double processor_before = coordinator.processor_seconds();
  std::vector<std::unique_ptr<LoadAgent>> agents;
  for (int node = 0; node < workers / kWorkersOfNode; ++node) {
    agents.push_back(std::make_unique<LoadAgent>(
        load, "n" + std::to_string(node), wire::new_member_secret()));
  }
  const bool has_formed = wait_for([&] { return load.met == workers; }, 300);
  const double forms = seconds_since(begin);
  const double forming_processor =
      coordinator.processor_seconds() - processor_before;
  say_refusals("forming");
  if (!has_formed) {
    std::fprintf(stderr, "%d of %d watch, %d have met\n", load.watching.load(),
                 workers, load.met.load());
    load.is_ending = true;
    std::this_thread::sleep_for(std::chrono::seconds(5));
    _exit(1);
  }

  LoadWorker* first = nullptr;
  for (auto& agent : agents) {
    for (int slot = 0; slot < kWorkersOfNode; ++slot) {
      if (agent->worker(slot).rank() == 0) first = &agent->worker(slot);
    }
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const int64_t answers_before = load.answers;
  const double busy_before = coordinator.processor_seconds();
  const double own_before = CoordinatorProcess::processor_seconds(getpid());
  const Clock::time_point steady = Clock::now();
  for (int64_t step = 1; seconds_since(steady) < seconds; ++step) {
    first->commit(step);
    std::this_thread::sleep_until(steady + step * milliseconds(100));
  }
  const double lasted = seconds_since(steady);
  const double calls =
      static_cast<double>(load.answers - answers_before) / lasted;
  const double share = (coordinator.processor_seconds() - busy_before) / lasted;
  const double own =
      (CoordinatorProcess::processor_seconds(getpid()) - own_before) / lasted;
  const double memory = coordinator.mebibytes();
  say_refusals("running");

  // One worker of every so many nodes, and never rank 0's.
  const int lost = std::max(1, workers / 100);
  load.met = 0;
  const Clock::time_point loss = Clock::now();
  for (int i = 0; i < lost; ++i) {
    const auto node =
        static_cast<size_t>(i) * agents.size() / static_cast<size_t>(lost);
    const bool is_first = &agents[node]->worker(3) == first;
    agents[node]->lose_worker(is_first ? 4 : 3);
  }
  const bool has_reformed = wait_for([&] { return load.met == workers; }, 120);
  const double reforms = seconds_since(loss);
  say_refusals("re-forming");

  const Clock::time_point death = Clock::now();
  coordinator.kill();
  coordinator.start();
  wait_for([&] { return load.watching < workers; }, 20);
  const bool has_returned =
      wait_for([&] { return load.watching == workers; }, 120);
  const double returns = seconds_since(death);
  say_refusals("returning");

  std::printf(
      "| %d | %.2f (%.2f) | %.0f | %.0f %% | %.0f %% | %.0f | %.2f%s | "
      "%.2f%s |\n",
      workers, forms, forming_processor, calls, 100 * share, 100 * own, memory,
      reforms, has_reformed ? "" : " (not all)", returns,
      has_returned ? "" : " (not all)");
  std::fflush(stdout);
  load.is_ending = true;
  coordinator.kill();
  // What is under way ends with its deadline; nobody waits for that.
  static std::deque<std::vector<std::unique_ptr<LoadAgent>>> past;
  past.push_back(std::move(agents));
  std::this_thread::sleep_for(std::chrono::seconds(16));
}

int run(const std::vector<int>& sizes, double seconds, int port) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  keep_to_core(kOwnCore);
  std::printf(
      "| workers | forms, s (of them processor) | calls a second | "
      "coordinator's core | this process's core | MiB | re-forms, s | "
      "returns, s |\n|---|---|---|---|---|---|---|---|\n");
  std::fflush(stdout);
  for (const int workers : sizes) {
    measure(workers, seconds, port,
            fs::temp_directory_path() /
                ("coordinator-load-" + std::to_string(getpid())));
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  std::vector<int> sizes = {64, 512, 4096};
  double seconds = 10;
  int port = 29555;
  CLI::App app("what a coordinator bears");
  app.add_option("--workers", sizes)->delimiter(',');
  app.add_option("--seconds", seconds);
  app.add_option("--port", port);
  CLI11_PARSE(app, argc, argv);
  std::_Exit(headroom::run(sizes, seconds, port));
}
