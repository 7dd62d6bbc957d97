// CoreTurn: lets trainings that share a machine's cores compute one after the
// other.
//
// Two processes with a thread for every core slow each other down far beyond a
// half. At the end of each parallel loop OpenMP's threads wait actively, so the
// threads of one process occupy cores while threads of the other process have
// work. Passive waiting is no remedy: every loop would then have to wake its
// threads, which costs half of the speed of a training that is alone. So a
// process takes a turn for a step, and computes the step with all cores.
//
// A turn is never a risk. A process that has waited too long, because the
// process with the turn is stopped or its step is very long, computes without
// one. Only processes of one user with the same cores and the same priority
// take turns: a process of higher priority must not wait for a lower one. A
// process with peers takes none, because a step waits for the peers, and two
// such steps could each wait for the turn of the other.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

namespace headroom {

// The processor time of all threads of this process. Does not grow while the
// process is stopped. Any thread.
std::chrono::nanoseconds processor_time();

class CoreTurn {
 public:
  using Clock = std::chrono::steady_clock;

  // All processes that give the same `folder` and `cores` take turns. Creates
  // the folder with mode 0700. If it cannot be created, or others may use it,
  // no turns are taken.
  CoreTurn(const std::filesystem::path& folder, const std::string& cores);
  // An object with which no turns are taken.
  CoreTurn() = default;
  ~CoreTurn();
  CoreTurn(const CoreTurn&) = delete;
  CoreTurn& operator=(const CoreTurn&) = delete;

  // The turn ends with this object.
  class Hold {
   public:
    // `turn` is null if there is no turn to end.
    explicit Hold(CoreTurn* turn) : turn_(turn) {}
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    bool has_turn() const { return turn_ != nullptr; }

   private:
    CoreTurn* const turn_;
    const Clock::time_point begin_ = Clock::now();
    const Clock::duration computed_ = processor_time();
  };
  // Waits for the turn, at most for the time of patience_after() the longest
  // turn of this process. If the turn did not come in this time, the calls of
  // the next minute do not wait. Must not be called while a Hold exists. One
  // thread.
  Hold take();

  // Four times `longest_turn`, but at least 2 s and at most 30 s.
  static Clock::duration patience_after(Clock::duration longest_turn);

 private:
  // Files with locks. A process holds `next_` while it waits for `turn_`, so a
  // process that has just ended its turn cannot overtake it. -1: no turns.
  int next_ = -1, turn_ = -1;
  Clock::duration longest_turn_ = {};
  Clock::time_point waits_from_ = {};
};

// The name of the turns of the calling thread on these cores: with its
// scheduling policy and nice value.
std::string turn_name(const std::string& cores);

// Takes a turn for a process with this number of ranks in its run, among all
// trainings of this user on the cores that this process may use. Takes none if
// there are several ranks, or if this process has one thread, or threads for at
// most half of the cores.
CoreTurn::Hold take_core_turn(int num_ranks, int threads);

// Whether this process waited for a turn in the last seconds, so that another
// training computes while this one waits, and not at the same time. Any thread.
bool shares_core_turns();

}  // namespace headroom
