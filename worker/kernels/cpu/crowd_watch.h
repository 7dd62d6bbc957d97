// CrowdWatch: threads that wait for each other do not keep the cores that other
// programs need.
//
// Between two operators the threads of a team wait for each other some
// microseconds. LibTorch's OpenMP library (libgomp) lets them spin for up to
// 3 ms before they sleep, which is fastest as long as nobody else needs the
// core: a step of a small model takes half as long again if they sleep at once.
// With two runs on the same cores it is the other way around, because a
// spinning thread holds the core of the thread that it waits for.
//
// libgomp reads its settings only when it is loaded, but while a process has
// more OpenMP threads than cores it spins for 100 turns only (its manual, at
// GOMP_SPINCOUNT). So while the machine is crowded, a thread of the watch holds
// a second team, which sleeps. The number of threads that compute does not
// change, and so no result does.
//
// While the trainings of one user take turns (core_turn.h), the watch does
// nothing, although a third program may then need the cores.
//
// A doubt: the threshold was measured on two cores alone.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <istream>
#include <mutex>
#include <thread>

namespace headroom::kernels {

// What this process and the others did since the previous look.
struct CrowdSigns {
  double seconds = 0;          // between the looks
  double waiting_seconds = 0;  // our threads that could run had to wait, summed
  double own_seconds = 0;      // processor time of this process
  double all_seconds = 0;      // of all processes, on our cores
};

// The clock ticks that `cores` have computed, by the text of /proc/stat.
// Programs on other cores of the machine take nothing from this process.
double busy_ticks(std::istream& stat, const cpu_set_t& cores);

// Whether other programs need the cores on which `threads` threads compute.
// `was_crowded`: the previous answer, which changes only on a clear sign.
bool is_crowded(const CrowdSigns& signs, int threads, int cores,
                bool was_crowded);

class CrowdWatch {
 public:
  // Watches from a thread of its own until it is destroyed. `threads`: the size
  // of the process's teams; with 1 there is nothing to watch.
  explicit CrowdWatch(int threads);
  ~CrowdWatch();
  CrowdWatch(const CrowdWatch&) = delete;
  CrowdWatch& operator=(const CrowdWatch&) = delete;

 private:
  void run();
  // Returns true if the watch ends before the next look.
  bool ends_within_a_look();
  // Holds the second team while the machine is crowded.
  void hold_team();

  const int threads_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace headroom::kernels
