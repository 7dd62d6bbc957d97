#include "parallel/machine/core_turn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <thread>

#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using Clock = CoreTurn::Clock;

// The pause between two tries to lock a file. It is short compared with a step.
constexpr auto kPause = std::chrono::microseconds(200);
constexpr auto kLeastPatience = std::chrono::seconds(2);
constexpr auto kMostPatience = std::chrono::seconds(30);
constexpr auto kWithoutWaiting = std::chrono::minutes(1);

// After a turn for which this process had to wait, it counts for so long as one
// of several processes that share their cores by turns.
constexpr auto kShared = std::chrono::seconds(5);

std::atomic<Clock::rep> last_shared_turn = 0;

// Opens the folder, which is created if need be; -1 if others could use it.
int open_private(const fs::path& folder) {
  ::mkdir(folder.c_str(), 0700);
  const int handle =
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat about {};
  if (handle >= 0 && ::fstat(handle, &about) == 0 &&
      about.st_uid == ::geteuid() && (about.st_mode & 077) == 0) {
    return handle;
  }
  if (handle >= 0) ::close(handle);
  return -1;
}

int open_lock(int folder, const std::string& name) {
  return ::openat(folder, name.c_str(),
                  O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

bool lock(int file, Clock::time_point deadline) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// The cores that this process may use, as a file name: "0-1", "0-3,8-11". ""
// if turns are of no use to this process.
std::string contended_cores(int threads) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0 || threads <= 1 ||
      2 * threads <= CPU_COUNT(&usable)) {
    return "";
  }
  const auto is_usable = [&](int core) {
    return core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &usable);
  };
  std::string cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!is_usable(core)) continue;
    if (!is_usable(core - 1)) cores += cat(cores.empty() ? "" : ",", core, "-");
    if (!is_usable(core + 1)) cores += cat(core);
  }
  constexpr size_t kLongestName = 200;
  return cores.size() <= kLongestName ? cores : "";
}

std::unique_ptr<CoreTurn> turn_of_this_process(int threads) {
  const std::string cores = contended_cores(threads);
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error || cores.empty()) return std::make_unique<CoreTurn>();
  return std::make_unique<CoreTurn>(
      temporary / cat("headroom-turns-", ::geteuid()), turn_name(cores));
}

}  // namespace

CoreTurn::CoreTurn(const fs::path& folder, const std::string& cores) {
  const int opened = open_private(folder);
  if (opened < 0) return;
  next_ = open_lock(opened, cores + ".next");
  turn_ = next_ < 0 ? -1 : open_lock(opened, cores + ".turn");
  ::close(opened);
}

CoreTurn::~CoreTurn() {
  if (next_ >= 0) ::close(next_);
  if (turn_ >= 0) ::close(turn_);
}

CoreTurn::Hold::~Hold() {
  if (turn_ == nullptr) return;
  // Use the smaller of elapsed time and processor time, because the process may
  // have been stopped during the step (Ctrl-Z).
  const Clock::duration length =
      std::min(Clock::now() - begin_, processor_time() - computed_);
  turn_->longest_turn_ = std::max(turn_->longest_turn_, length);
  ::flock(turn_->turn_, LOCK_UN);
}

CoreTurn::Clock::duration CoreTurn::patience_after(
    Clock::duration longest_turn) {
  return std::clamp<Clock::duration>(4 * longest_turn, kLeastPatience,
                                     kMostPatience);
}

std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

CoreTurn::Hold CoreTurn::take() {
  if (turn_ < 0) return Hold(nullptr);
  // A process that waits for its turn is not stuck.
  const LongWork waiting;
  const Clock::time_point now = Clock::now();
  const auto deadline =
      now < waits_from_ ? now : now + patience_after(longest_turn_);
  bool has_turn = lock(next_, deadline);
  if (has_turn) {
    has_turn = lock(turn_, deadline);
    ::flock(next_, LOCK_UN);
  }
  if (!has_turn && now >= waits_from_) waits_from_ = now + kWithoutWaiting;
  if (has_turn && Clock::now() - now > kPause) {
    last_shared_turn = Clock::now().time_since_epoch().count();
  }
  return Hold(has_turn ? this : nullptr);
}

std::string turn_name(const std::string& cores) {
  return cat(cores, ".policy", ::sched_getscheduler(0), ".nice",
             ::getpriority(PRIO_PROCESS, 0));
}

CoreTurn::Hold take_core_turn(int num_ranks, int threads) {
  if (num_ranks > 1) return CoreTurn::Hold(nullptr);
  static const std::unique_ptr<CoreTurn> turn = turn_of_this_process(threads);
  return turn->take();
}

bool shares_core_turns() {
  const Clock::time_point last{Clock::duration(last_shared_turn.load())};
  return Clock::now() - last < kShared;
}

}  // namespace headroom
