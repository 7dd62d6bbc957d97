// Measures how a coordinator performs under load: thousands of agents and
// workers in one process, each with its own connection, send the same messages
// as real ones.
//
//   build/bin/benchmark_coordinator_load [--workers 64,512,4096] [--seconds 10]
//
// Starts `headroom coordinator` on core 0, as a user would; this process runs
// on core 1. Agents of 8 workers each register and collect their workers'
// heartbeats. Workers join, and each exchanges all keys that are needed to form
// a generation (load_members.h).
//
//   keys      average number of requests that a worker makes to the run's map
//             until it is connected with the others
//   forms     time from the first registration until all form generation 1
//   calls     answered calls per second while all send heartbeats and rank 0
//             commits ten steps a second; beats: the heartbeats among them
//   re-forms  time from the death of 1 % until all form generation 2
//   returns   time from the coordinator's death until all follow its successor
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "proto/channel.h"
#include "tests/benchmarks/load_members.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

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

// --- the coordinator, started as by a user ----------------------------------

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
  // The processor time that was used since the start.
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
  const double own_at_first = CoordinatorProcess::processor_seconds(getpid());
  std::vector<std::unique_ptr<LoadAgent>> agents;
  for (int node = 0; node < workers / kWorkersOfNode; ++node) {
    agents.push_back(std::make_unique<LoadAgent>(
        load, "n" + std::to_string(node), wire::new_member_secret()));
  }
  const bool has_formed = wait_for([&] { return load.met == workers; }, 300);
  const double forms = seconds_since(begin);
  const double keys =
      static_cast<double>(load.exchanges.load()) / static_cast<double>(workers);
  const double forming_processor =
      coordinator.processor_seconds() - processor_before;
  const double forming_own =
      CoordinatorProcess::processor_seconds(getpid()) - own_at_first;
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
  const int64_t answers_before = load.answers, beats_before = load.beats;
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
  const double beats = static_cast<double>(load.beats - beats_before) / lasted;
  const double share = (coordinator.processor_seconds() - busy_before) / lasted;
  const double own =
      (CoordinatorProcess::processor_seconds(getpid()) - own_before) / lasted;
  const double memory = coordinator.mebibytes();
  say_refusals("running");

  // The lost workers are on different nodes at equal distances, but rank 0 is
  // never among them.
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
      "| %d | %.1f | %.2f (%.2f, %.2f) | %.0f | %.0f | %.0f %% | %.0f %% | "
      "%.0f | "
      "%.2f%s | "
      "%.2f%s |\n",
      workers, keys, forms, forming_processor, forming_own, calls, beats,
      100 * share, 100 * own, memory, reforms, has_reformed ? "" : " (not all)",
      returns, has_returned ? "" : " (not all)");
  std::fflush(stdout);
  load.is_ending = true;
  coordinator.kill();
  // Calls in progress end with their deadlines; the program does not wait for
  // them.
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
      "| workers | keys | forms, s (processor; this process's) | calls a "
      "second | "
      "beats a "
      "second | "
      "coordinator's core | this process's core | MiB | re-forms, s | "
      "returns, s |\n|---|---|---|---|---|---|---|---|---|---|\n");
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
