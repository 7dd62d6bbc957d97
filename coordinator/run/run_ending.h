// RunEnding: how a run ends that has lost a worker and cannot be regrouped.
//
//   survivors report how many steps they committed
//     -> the one with the most (ties: the lowest rank) saves that state
//     -> everybody exits, the run ends with exit 5 and says how to resume
//
// The newest step that any survivor committed is the truth: a step that one
// rank committed and another did not is complete on the first.
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
  // How long survivors may take to report; longer than a collective's limit, in
  // which one may sit.
  std::chrono::milliseconds report_timeout = std::chrono::seconds(130);
  // The time for the agent to say how the lost worker died.
  std::chrono::milliseconds exit_detail_timeout = std::chrono::seconds(2);
  // The time for one survivor to save.
  std::chrono::milliseconds save_timeout = std::chrono::seconds(120);
};

// The worker that was lost first.
struct Loss {
  std::string worker_id;
  std::string hostname;
  int rank = -1;    // -1: before the first generation
  std::string how;  // a verb phrase: "closed its connection"
  // `how` says why it happened (it was silent, it gave a message); otherwise
  // the exit code does.
  bool explained = false;
  bool agent_silent = false;     // nobody will report the exit code
  std::optional<int> exit_code;  // its agent's word; 128 + signal
  std::string last_words;        // may have many lines
  TimePoint time;
};

// What a survivor says it has.
struct SurvivorState {
  // Holds only a part of the state, so it cannot save it alone.
  bool holds_a_part = false;
  // Steps of the newest checkpoint that it knows of; 0: there is none.
  std::optional<int64_t> checkpoint_steps = {};
  // Its state, loaders and caches are fit for the next generation.
  bool can_go_on = false;
  int64_t recorded_epochs = 0;
};

// A worker of the generation that is not the lost one.
struct Survivor {
  std::string worker_id;
  int rank = 0;
  bool gone = false;
  std::optional<int64_t> committed_steps;  // once it has reported
  bool can_save = true;  // false: it failed itself, or failed to save
  SurvivorState state;
};

struct RunEnding {
  TimePoint begin;
  std::optional<Loss> loss;  // none while only peers have complained
  // The first survivor's complaint, used when nobody was lost.
  std::string first_complaint;
  // Why no further generation is formed of those who are there; "" where too few
  // are.
  std::string gave_up;
  std::vector<Survivor> survivors;  // survivors as ranked
  int64_t known_steps = 0;          // committed, as rank 0 last told
  std::string saver;                // told to save; "" for nobody
  TimePoint saver_since;
  std::optional<int64_t> saved_step;
  // Steps of the newest checkpoint that lost workers knew of.
  std::optional<int64_t> checkpoint_steps;

  // Null if the worker is no survivor.
  Survivor* find(const std::string& worker_id);
};

struct EndingDecision {
  enum class Kind { kWait, kSave, kOver };
  Kind kind = Kind::kWait;
  std::string worker_id;  // who is to save
  std::string reason;     // what is waited for, or why this worker
};

// Why a run is over, in one line.
struct EndReason {
  std::string text;
  bool says_how_to_go_on = false;  // `text` has the command that resumes it
};

// Notes which survivors have left, and whether anybody can say how the lost
// worker ended.
void note_who_is_gone(RunEnding& ending, const Membership& membership);

// REQUIRES: give_up_saver() was called before.
EndingDecision decide_ending(TimePoint now, const RunEnding& ending,
                             const EndingOptions& options);

// The worker that was told to save and has left, failed or overrun its time:
// from now on another may. Nothing while nobody has.
std::optional<Survivor> give_up_saver(TimePoint now, RunEnding& ending,
                                      const EndingOptions& options);

// The lost worker's exit code if it could not even start, else 5.
ExitCode exit_code_of(const RunEnding& ending);

// How the worker was lost, as a verb phrase.
std::string describe_loss(const Loss& loss);

// The final reason: who was lost, how, its last words, what is saved, and the
// command that goes on.
EndReason describe_ending(const RunEnding& ending,
                          const std::string& run_directory);

// "was killed by signal 9 (Killed)" or "ended with exit code 1".
std::string describe_exit(int exit_code);

// The last lines of a process's stderr as one line of at most 400 characters.
std::string one_line(const std::string& last_words);

}  // namespace headroom::coordinator
