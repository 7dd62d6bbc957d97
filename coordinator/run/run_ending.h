// RunEnding: how a run ends after a loss if no further generation can be
// formed.
//
//   survivors report how many steps they have committed
//     -> the survivor with the most steps (ties: the lowest rank) saves its
//        state
//     -> all exit; the run ends with exit 5 and says how to resume
//
// The newest step that any survivor committed counts: a step that one rank
// committed is complete on that rank, even if another rank did not commit it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/membership.h"
#include "parallel/base/check.h"

namespace headroom::coordinator {

struct EndingOptions {
  // How long survivors may take to report. Must be longer than the time limit
  // of a collective, since a survivor may be blocked in one.
  std::chrono::milliseconds report_timeout = std::chrono::seconds(130);
  // How long to wait for the agent's report on how the lost worker ended. The
  // report only improves the message.
  std::chrono::milliseconds exit_detail_timeout = std::chrono::seconds(2);
  // How long one survivor may take to save; then another survivor is asked.
  // Increase it for slow storage.
  std::chrono::milliseconds save_timeout = std::chrono::seconds(120);
};

// The worker that was lost first.
struct Loss {
  std::string worker_id;
  std::string hostname;
  int rank = -1;    // -1 before the first generation
  std::string how;  // a verb phrase: "closed its connection"
  // Whether `how` gives the cause (the worker was silent, or sent a message);
  // otherwise the exit code shows the cause.
  bool explained = false;
  bool agent_silent = false;     // the worker's agent sends no messages
  std::optional<int> exit_code;  // reported by its agent; 128 + signal
  std::string last_words;        // end of its stderr; may be several lines
  TimePoint time;
};

// A survivor's report about its state.
struct SurvivorState {
  // True if the survivor has only a part of the state, and cannot save the
  // state alone.
  bool holds_a_part = false;
  // Steps of the newest checkpoint reported to the survivor; 0 if no checkpoint
  // was reported.
  std::optional<int64_t> checkpoint_steps = {};
  // The survivor can use its state, loaders and caches in the next generation.
  bool can_go_on = false;
  int64_t recorded_epochs = 0;
};

// A worker of the generation other than the lost one.
struct Survivor {
  std::string worker_id;
  int rank = 0;
  bool gone = false;
  std::optional<int64_t> committed_steps;  // unset until the survivor reports
  bool can_save = true;  // false if the worker failed, or failed to save
  SurvivorState state;
};

struct RunEnding {
  TimePoint begin;
  std::optional<Loss> loss;  // no value until a worker is known to be lost
  // The first failure that a worker reported; the final reason contains it if
  // no worker was lost.
  std::string first_complaint;
  // Why no further generation is formed; "" if there are too few workers.
  std::string gave_up;
  std::vector<Survivor> survivors;  // in rank order
  int64_t known_steps = 0;          // committed steps in rank 0's newest report
  std::string saver;  // the worker ordered to save; "" if there is none
  TimePoint saver_since;
  std::optional<int64_t> saved_step;
  // Number of steps in the newest checkpoint. A worker that is now lost
  // reported it.
  std::optional<int64_t> checkpoint_steps;

  // Returns nullptr if the worker is not a survivor.
  Survivor* find(const std::string& worker_id);
};

struct EndingDecision {
  enum class Kind { kWait, kSave, kOver };
  Kind kind = Kind::kWait;
  std::string worker_id;  // the worker that should save
  std::string reason;     // what the run waits for, or why this worker saves
};

// Why a run is over, in one line.
struct EndReason {
  std::string text;
  bool says_how_to_go_on = false;  // `text` contains the resume command
};

// Updates which survivors left, and whether the lost worker's agent is silent.
void note_who_is_gone(RunEnding& ending, const Membership& membership);

// REQUIRES: give_up_saver() was called before.
EndingDecision decide_ending(TimePoint now, const RunEnding& ending,
                             const EndingOptions& options);

// If the worker ordered to save has left, failed or exceeded its time, cancels
// the order and returns that worker; another may then save. Else nullopt.
std::optional<Survivor> give_up_saver(TimePoint now, RunEnding& ending,
                                      const EndingOptions& options);

// The lost worker's exit code if no step was committed and every worker would
// end in the same way; else 5.
ExitCode exit_code_of(const RunEnding& ending);

// Sets how the worker was lost: the kernel killed it, as the host's memory ran
// out at that limit.
void explain_by_host_memory(Loss& loss, const std::string& limit);

// How the worker was lost, as a verb phrase for messages.
std::string describe_loss(const Loss& loss);

// The final reason: which worker was lost, how, the end of its stderr, what is
// saved, and the resume command.
EndReason describe_ending(const RunEnding& ending,
                          const std::string& run_directory);

// "was killed by signal 9 (Killed)" or "ended with exit code 1".
std::string describe_exit(int exit_code);

// The last lines of a process's stderr as one line of at most 400 characters.
std::string one_line(const std::string& last_words);

}  // namespace headroom::coordinator
