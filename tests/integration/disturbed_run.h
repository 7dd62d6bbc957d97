// A run that a test disturbs from outside while it goes on: its processes, its
// committed steps, and checks of its final state.
//
// Errors: GoogleTest failures.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin);

// Calls `is_so` every 2 ms until it returns true; returns false after
// `seconds`.
bool wait_until(const std::function<bool()>& is_so, double seconds);

// The folder of the only run in `folder`.
std::filesystem::path run_directory(const std::filesystem::path& folder);

// The complete lines of steps.jsonl or events.jsonl, also while the file is
// written.
std::vector<Json> lines_so_far(const std::filesystem::path& file);
std::vector<Json> steps_so_far(const std::filesystem::path& folder);
std::vector<Json> events_named(const std::filesystem::path& folder,
                               const std::string& name);

// The command of one of `size` slots on this host, with Open MPI's variables.
// Each slot has an agent, and slot 0 also has the coordinator. `job` must be
// unique.
std::vector<std::string> in_slot(int slot, int size, const std::string& job,
                                 const std::vector<std::string>& command);

// --- processes below a supervisor, in the order of their starts --------------
std::vector<pid_t> workers_of(pid_t pid);
std::vector<pid_t> coordinators_of(pid_t supervisor);
std::vector<pid_t> agents_of(pid_t supervisor);

// --- checks at the end -------------------------------------------------------

// Expects samples, losses and gradient norms that are equal bit for bit.
void expect_same_steps(const std::vector<Json>& steps,
                       const std::vector<Json>& expected);

// Checks with `headroom status --ledger` that every step and each sample occurs
// once.
void expect_exact_ledger(const std::filesystem::path& folder);

}  // namespace headroom::testing
