#include "deploy/cli/process/process_limits.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/machine/machine_limits.h"

namespace headroom::cli {
namespace {

// The number of threads of a process that uses gRPC, without gRPC's pool. It
// was measured as 6 to 8.
constexpr int64_t kThreadsOfAProcess = 8;
// The number of a worker's other threads, for connections between ranks,
// checkpoints and events. It was measured as 7.
constexpr int64_t kThreadsOfAWorker = 12;
constexpr int64_t kStartingProcesses = 3;  // supervisor, coordinator, agent

// The limits that may be the cause, as text; "" if none is known.
std::string limits_of_threads() {
  std::string text;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    text = cat("ulimit -u is ", limit.rlim_cur);
  }
  if (const auto most = read_machine_limits().most_threads) {
    text += cat(text.empty() ? "" : ", ", "pids.max of its cgroup is ", *most);
  }
  return text;
}

// Returns how many of `wanted` threads could be started. If fewer than
// `wanted`, sets `error` to the reason.
int64_t startable(int64_t wanted, int& error) {
  std::latch end(1);
  pthread_attr_t small;
  pthread_attr_init(&small);
  // This tests limits on the number of threads. The stacks are small, so that
  // `ulimit -v` has no effect.
  pthread_attr_setstacksize(&small, size_t{128} << 10);
  std::vector<pthread_t> threads;
  const auto wait = [](void* latch) -> void* {
    static_cast<std::latch*>(latch)->wait();
    return nullptr;
  };
  error = 0;
  while (std::ssize(threads) < wanted) {
    pthread_t thread{};
    error = pthread_create(&thread, &small, wait, &end);
    if (error != 0) break;
    threads.push_back(thread);
  }
  end.count_down();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
  return std::ssize(threads);
}

}  // namespace

void require_descriptors() {
  constexpr rlim_t kLeast = 32;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw Error(
      "launch",
      cat("this process may open ", limit.rlim_cur,
          " files at once, and a run takes at least ", kLeast, " descriptors"),
      "allow it more, for example ulimit -n 1024", ExitCode::kResource);
}

int64_t RunThreads::total() const {
  const int64_t pool = std::clamp<int64_t>(cores, 4, 16);
  // While a validation begins, the loader of the training still has threads.
  // CrowdWatch (worker/kernels/cpu): the thread that watches, and a team of one
  // thread more than the cores that the worker's threads leave.
  const int64_t watch =
      threads < 2 ? 0 : 1 + std::max<int64_t>(2, cores_of_mask - threads + 2);
  const int64_t worker =
      pool + kThreadsOfAWorker + threads + watch + 2 * loader_threads;
  return kStartingProcesses * (pool + kThreadsOfAProcess) + workers * worker;
}

void require_threads(const RunThreads& needed) {
  const int64_t wanted = needed.total();
  int error = 0;
  const int64_t started = startable(wanted, error);
  if (started == wanted) return;
  const std::string limits = limits_of_threads();
  throw Error("launch",
              cat("a run takes up to ", wanted,
                  " threads here, and the system allows ", started, " more (",
                  strerror(error), limits.empty() ? "" : "; " + limits, ")"),
              cat("allow more, for example ulimit -u ", 2 * wanted,
                  " or docker run --pids-limit ", 2 * wanted,
                  ", or take fewer: --workers 1 --threads 1"),
              ExitCode::kResource);
}

void require_address_space() {
  // LibTorch's libraries, and a small run's threads and tensors. Measured:
  // yolov5n at 64 pixels ends with 600 MiB, and trains with 700 MiB.
  constexpr rlim_t kLeast = rlim_t{768} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw Error(
      "launch",
      "each process may have " +
          format_bytes(static_cast<int64_t>(limit.rlim_cur)) +
          " of address space (ulimit -v), and a worker takes at least " +
          format_bytes(static_cast<int64_t>(kLeast)) +
          " before its first tensor",
      "allow it more (ulimit -v unlimited); --memory-limit and "
      "--host-memory-limit bound what a run really uses",
      ExitCode::kResource);
}

}  // namespace headroom::cli
