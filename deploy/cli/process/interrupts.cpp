#include "deploy/cli/process/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace headroom::interrupts {
namespace {

constexpr int64_t kOneRequestMs = 50;
constexpr int64_t kPatienceWithoutParentMs = 15'000;

std::atomic<int> received{0};
std::atomic<int> watches{0};
std::atomic<pid_t> parent{0};  // 0: the parent is not watched
std::atomic<int64_t> parent_lost_ms{0};
std::atomic<int64_t> counted_ms{-kOneRequestMs};
static_assert(std::atomic<int64_t>::is_always_lock_free);
std::atomic<unsigned> last_resort_seconds{0};
std::atomic<int> woken{-1};  // an eventfd; readable after the first signal

int64_t clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Runs in a signal handler: async-signal-safe calls and atomics only.
void receive(int signal) {
  if (watches == 0) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // delivered when this handler returns
    return;
  }
  const int64_t now_ms = clock_ms();
  int64_t counted = counted_ms.load();
  if (now_ms - counted < kOneRequestMs) return;
  if (!counted_ms.compare_exchange_strong(counted, now_ms)) return;
  // An alarm, because no thread may be left that could look at a clock.
  if (++received == 2) alarm(last_resort_seconds);
  const int before = errno;
  eventfd_write(woken, 1);
  errno = before;
}

// Handles SIGALRM; async-signal-safe calls only.
void end_at_last(int) {
  constexpr std::string_view kWords =
      "[headroom] ended, as it did not stop by itself after the second "
      "Ctrl-C\n";
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, kWords.data(), kWords.size());
  _exit(130);
}

// Returns 1 once the parent has ended (asks for an orderly stop), 2 after 15 s
// (asks to stop at once).
int requests_of_lost_parent() {
  if (parent == 0 || getppid() == parent) return 0;
  const int64_t now_ms = clock_ms();
  int64_t never = 0;
  parent_lost_ms.compare_exchange_strong(never, now_ms);
  return now_ms - parent_lost_ms < kPatienceWithoutParentMs ? 1 : 2;
}

}  // namespace

void install(std::chrono::seconds last_resort) {
  last_resort_seconds = static_cast<unsigned>(last_resort.count());
  std::signal(SIGALRM, end_at_last);
  if (woken < 0) woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = receive;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that cannot grow is an error
}

void watch_parent() { parent = getppid(); }

void request() {
  int none = 0;
  if (received.compare_exchange_strong(none, 1)) eventfd_write(woken, 1);
}

int count() { return received + requests_of_lost_parent(); }

bool wait(std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + patience;
  // This descriptor becomes readable when the parent ends. If the parent is not
  // watched, it is -1, which poll() skips.
  const int parent_gone =
      parent == 0 ? -1
                  : static_cast<int>(syscall(SYS_pidfd_open, parent.load(), 0));
  std::array<pollfd, 2> events{pollfd{woken, POLLIN, 0},
                               pollfd{parent_gone, POLLIN, 0}};
  while (count() == 0 && Clock::now() < end) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    poll(events.data(), events.size(),
         static_cast<int>(std::min<int64_t>(left.count(), INT_MAX)));
  }
  if (parent_gone >= 0) close(parent_gone);
  return count() > 0;
}

Watch::Watch() { ++watches; }
Watch::~Watch() { --watches; }

}  // namespace headroom::interrupts
