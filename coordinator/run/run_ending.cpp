#include "coordinator/run/run_ending.h"

#include <algorithm>
#include <cstring>

#include "coordinator/run/restart_policy.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::coordinator {
namespace {

// The largest number of committed steps that any survivor reported.
int64_t newest_step(const RunEnding& ending) {
  int64_t newest = ending.known_steps;
  for (const Survivor& survivor : ending.survivors) {
    newest = std::max(newest, survivor.committed_steps.value_or(0));
  }
  return newest;
}

// Steps of the newest checkpoint that any worker reported; no value if none.
std::optional<int64_t> checkpoint_steps(const RunEnding& ending) {
  std::optional<int64_t> newest = ending.checkpoint_steps;
  for (const Survivor& survivor : ending.survivors) {
    newest = std::max(newest, survivor.state.checkpoint_steps);
  }
  return newest;
}

const Survivor* best_saver(const RunEnding& ending) {
  const Survivor* best = nullptr;
  for (const Survivor& survivor : ending.survivors) {
    if (survivor.gone || !survivor.can_save) continue;
    if (survivor.state.holds_a_part) continue;
    const int64_t steps = survivor.committed_steps.value_or(0);
    if (steps == 0) continue;
    if (best == nullptr || steps > *best->committed_steps) best = &survivor;
  }
  return best;
}

}  // namespace

EndingDecision decide_ending(TimePoint now, const RunEnding& ending,
                             const EndingOptions& options) {
  using Kind = EndingDecision::Kind;
  if (!ending.saver.empty() && !ending.saved_step) {
    return {Kind::kWait, "", "worker " + ending.saver + " saves the state"};
  }
  if (!ending.saved_step) {
    int silent = 0;
    for (const Survivor& survivor : ending.survivors) {
      if (!survivor.gone && !survivor.committed_steps) ++silent;
    }
    if (silent > 0 && now - ending.begin < options.report_timeout) {
      return {Kind::kWait, "",
              cat(silent, " of ", ending.survivors.size(),
                  " survivors have not said how far they are")};
    }
    if (const Survivor* best = best_saver(ending)) {
      return {Kind::kSave, best->worker_id,
              cat("rank ", best->rank, " saves the state after ",
                  counted(*best->committed_steps, "step"),
                  ", the newest that a survivor committed")};
    }
  }
  // Wait briefly: the agent's report on the worker's end improves the message.
  const bool unexplained =
      !ending.loss || (!ending.loss->explained && !ending.loss->agent_silent &&
                       !ending.loss->exit_code);
  const TimePoint since = ending.loss ? ending.loss->time : ending.begin;
  if (unexplained && now - since < options.exit_detail_timeout) {
    return {Kind::kWait, "", "waiting for the agent's report of the exit"};
  }
  return {Kind::kOver, "", ""};
}

Survivor* RunEnding::find(const std::string& worker_id) {
  for (Survivor& entry : survivors) {
    if (entry.worker_id == worker_id) return &entry;
  }
  return nullptr;
}

void note_who_is_gone(RunEnding& ending, const Membership& membership) {
  for (Survivor& entry : ending.survivors) {
    const Member* member = membership.find(entry.worker_id);
    entry.gone = member == nullptr || member->state == MemberState::kGone;
  }
  if (!ending.loss) return;
  const Member* lost = membership.find(ending.loss->worker_id);
  if (lost == nullptr) return;  // the lost worker was replaced
  ending.loss->agent_silent = membership.find_node(lost->node_id)->silent;
}

std::optional<Survivor> give_up_saver(TimePoint now, RunEnding& ending,
                                      const EndingOptions& options) {
  if (ending.saver.empty() || ending.saved_step) return std::nullopt;
  Survivor& saver = *ending.find(ending.saver);
  const bool is_overdue = now - ending.saver_since >= options.save_timeout;
  if (!saver.gone && saver.can_save && !is_overdue) return std::nullopt;
  saver.can_save = false;
  ending.saver.clear();
  return saver;
}

ExitCode exit_code_of(const RunEnding& ending) {
  const bool nothing_done = !ending.saved_step && ending.known_steps == 0;
  if (nothing_done && ending.loss && ending.loss->exit_code &&
      ends_every_worker(*ending.loss->exit_code)) {
    return static_cast<ExitCode>(*ending.loss->exit_code);
  }
  return ExitCode::kResource;
}

void explain_by_host_memory(Loss& loss, const std::string& limit) {
  loss.how =
      "ran out of the host's memory and was killed by the kernel (memory: " +
      limit + ")";
  loss.explained = true;
}

std::string describe_loss(const Loss& loss) {
  return loss.exit_code && !loss.explained ? describe_exit(*loss.exit_code)
                                           : loss.how;
}

std::string describe_exit(int exit_code) {
  if (exit_code > 128 && exit_code < 128 + 65) {
    const int signal = exit_code - 128;
    const char* name = sigabbrev_np(signal);
    return cat("was killed by signal ", signal,
               name == nullptr ? "" : " (SIG" + std::string(name) + ")");
  }
  return cat("ended with exit code ", exit_code);
}

std::string one_line(const std::string& last_words) {
  constexpr int kMaxLines = 3;
  constexpr size_t kMaxLength = 400;
  std::vector<std::string> lines;  // newest first
  size_t end = last_words.size();
  while (end > 0 && lines.size() < kMaxLines) {
    const size_t feed = last_words.rfind('\n', end - 1);
    const size_t begin = feed == std::string::npos ? 0 : feed + 1;
    std::string line;
    for (size_t i = begin; i < end; ++i) {
      const char c = last_words[i];
      if (static_cast<unsigned char>(c) >= ' ' && c != '\x7f') line += c;
    }
    if (line.find_first_not_of(' ') != std::string::npos) {
      lines.push_back(line);
    }
    end = begin == 0 ? 0 : begin - 1;
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    text += (text.empty() ? "" : " | ") + *line;
  }
  if (text.size() > kMaxLength) {
    text = "..." + text.substr(text.size() - kMaxLength);
  }
  return valid_utf8(text);
}

EndReason describe_ending(const RunEnding& ending,
                          const std::string& run_directory) {
  std::string text;
  if (!ending.gave_up.empty()) {
    text = ending.gave_up;
  } else if (ending.loss) {
    const Loss& loss = *ending.loss;
    text = loss.rank < 0
               ? "worker " + loss.worker_id
               : cat("rank ", loss.rank, " (worker ", loss.worker_id, ")");
    text += " on " + loss.hostname + " ";
    text += describe_loss(loss);
    const std::string words = one_line(loss.last_words);
    if (!words.empty()) text += "; its last words: " + words;
  } else {
    text = "the workers lost each other though none has ended";
    if (!ending.first_complaint.empty()) {
      text += ": " + one_line(ending.first_complaint);
    }
  }
  const int64_t newest = newest_step(ending);
  const std::string resume =
      "headroom train --resume " + shell_word(run_directory);
  if (ending.saved_step) {
    return {text + "; the state after " + counted(*ending.saved_step, "step") +
                " is saved, continue with: " + resume,
            true};
  }
  if (newest > 0) {
    const std::optional<int64_t> saved = checkpoint_steps(ending);
    if (saved == newest) {
      return {text + "; the state after " + counted(newest, "step") +
                  " is saved, continue with: " + resume,
              true};
    }
    text += "; the state after " + counted(newest, "step") + " is not saved";
    // Rank 0 may have written a checkpoint that was not reported to survivors.
    if (saved == 0) {
      return {text + "; start the run again if its checkpoints/ is empty"};
    }
    // No remaining worker reported on checkpoints, so it is unknown whether
    // there is one.
    if (!saved) return {text};
    return {text + ", continue from the checkpoint after " +
                counted(*saved, "step") + " with: " + resume,
            true};
  }
  return {text + "; no step had been committed, start the run again"};
}

}  // namespace headroom::coordinator
