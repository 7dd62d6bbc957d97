// CrowdWatch: shortens the time for which waiting threads keep their cores,
// while other programs need these cores.
//
// Between two operators the threads of a team wait for each other some
// microseconds. LibTorch's OpenMP library (libgomp) lets them spin for up to
// 3 ms before they sleep, which is fastest as long as nobody else needs the
// core: a step of a small model takes half as long again if they sleep at once.
// With two runs on the same cores, sleeping at once is faster, because a
// spinning thread may keep the core that the thread it waits for needs.
//
// libgomp reads its settings only when it is loaded, but while a process has
// more OpenMP threads than cores it spins for 100 turns only (its manual, at
// GOMP_SPINCOUNT). So while the machine is crowded, a thread of the watch holds
// a second team, which sleeps. The number of threads that compute does not
// change, so results do not change.
//
// While the trainings of one user take turns (core_turn.h), the watch does
// nothing, although a third program may then need the cores.
//
// A weakness: the thresholds were measured on a machine with two cores only.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <istream>
#include <mutex>
#include <thread>

namespace headroom::kernels {

// Measurements of this process and of all processes since the previous look.
struct CrowdSigns {
  double seconds = 0;          // time since the previous look
  double waiting_seconds = 0;  // summed over threads that had no core
  double own_seconds = 0;      // processor time of this process
  double all_seconds = 0;      // processor time of all processes on our cores
};

// The clock ticks for which `cores` were busy, read from the text of
// /proc/stat. Other cores do not count, because this process cannot use them.
double busy_ticks(std::istream& stat, const cpu_set_t& cores);

// Whether other programs need the cores on which `threads` threads compute.
// `was_crowded` is the previous answer; it changes only on clear signs.
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
  // Keeps a second team of OpenMP threads alive while other programs need the
  // cores: with more threads than cores, the OpenMP library lets waiting
  // threads sleep instead of spin.
  void hold_team();

  const int threads_;
  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace headroom::kernels
