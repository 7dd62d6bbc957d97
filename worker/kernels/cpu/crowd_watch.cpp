#include "worker/kernels/cpu/crowd_watch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/machine/core_turn.h"
#include "parallel/machine/core_wait.h"
#include "parallel/machine/machine_limits.h"

namespace headroom::kernels {
namespace {

// The time between two measurements, each of some 10 us per thread.
constexpr auto kLook = std::chrono::milliseconds(500);
// After this many measurements without a crowd, waiting threads spin again.
constexpr int kCalmLooks = 4;

double all_seconds() {
  std::ifstream file("/proc/stat");
  cpu_set_t cores;
  if (sched_getaffinity(getpid(), sizeof cores, &cores) != 0) return 0;
  return busy_ticks(file, cores) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double now_seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CrowdSigns totals() {
  const std::chrono::duration<double> own = processor_time();
  const std::chrono::duration<double> waiting = coreless_time();
  return {now_seconds(), waiting.count(), own.count(), all_seconds()};
}

// The waiting time may fall, because threads that have ended do not count.
CrowdSigns between(const CrowdSigns& a, const CrowdSigns& b) {
  return {b.seconds - a.seconds,
          std::max(0.0, b.waiting_seconds - a.waiting_seconds),
          b.own_seconds - a.own_seconds, b.all_seconds - a.all_seconds};
}

// Starts a team of threads of the calling thread. The team then sleeps, and
// ends with the calling thread.
void make_team(int size) {
#pragma omp parallel num_threads(size)
  { asm volatile(""); }  // GCC would omit an empty region
}

}  // namespace

double busy_ticks(std::istream& stat, const cpu_set_t& cores) {
  double sum = 0;
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0;
    words >> name >> user >> nice >> system;
    const auto core = parse_whole(name.substr(3), 0);  // none for the sum
    if (core && *core < CPU_SETSIZE && CPU_ISSET(*core, &cores)) {
      sum += user + nice + system;
    }
  }
  return sum;
}

bool is_crowded(const CrowdSigns& signs, int threads, int cores,
                bool was_crowded) {
  if (signs.seconds <= 0) return was_crowded;
  // The cores are crowded only if two signs appear together: our threads have
  // to wait, and other programs use cores that we need. The first sign alone
  // may come from the loader's threads.
  const double others = (signs.all_seconds - signs.own_seconds) / signs.seconds;
  const double spare = std::max(0, cores - threads);
  const double share = was_crowded ? 0.25 : 0.5;  // a share of one core
  const double waits = was_crowded ? 0.02 : 0.1;
  return others > spare + share &&
         signs.waiting_seconds > waits * signs.own_seconds;
}

CrowdWatch::CrowdWatch(int threads) : threads_(threads) {
  if (threads_ < 2) return;
  thread_ = std::thread([this] { run(); });
}

CrowdWatch::~CrowdWatch() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

bool CrowdWatch::ends_within_a_look() {
  std::unique_lock lock(mutex_);
  return ending_.wait_for(lock, kLook, [this] { return is_ending_; });
}

void CrowdWatch::run() {
  const auto cores = static_cast<int>(read_machine_limits().cores);
  CrowdSigns before = totals();
  while (!ends_within_a_look()) {
    const CrowdSigns now = totals();
    // A training that takes turns with this one uses the cores at other times.
    const bool crowded = !shares_core_turns() &&
                         is_crowded(between(before, now), threads_, cores,
                                    /*was_crowded=*/false);
    before = now;
    if (!crowded) continue;
    log::debug("the cores are crowded: waiting threads sleep at once");
    // Use a separate thread: its end also ends the team.
    std::thread holder([this] { hold_team(); });
    holder.join();
    log::debug("the cores are free again: waiting threads spin");
    before = totals();
  }
}

void CrowdWatch::hold_team() {
  const MachineLimits limits = read_machine_limits();
  const auto cores = static_cast<int>(limits.cores);
  // With this team the process has one thread more than cores.
  make_team(std::max(2, static_cast<int>(limits.cores_of_mask) - threads_ + 2));
  CrowdSigns before = totals();
  for (int calm = 0; calm < kCalmLooks;) {
    if (ends_within_a_look()) return;
    const CrowdSigns now = totals();
    const bool crowded = !shares_core_turns() &&
                         is_crowded(between(before, now), threads_, cores,
                                    /*was_crowded=*/true);
    before = now;
    calm = crowded ? 0 : calm + 1;
  }
}

}  // namespace headroom::kernels
