#include "coordinator/service/group_commit.h"

#include <utility>

namespace headroom::coordinator {

GroupCommit::GroupCommit(std::mutex& mutex, RunJournal& journal)
    : mutex_(mutex), journal_(journal), thread_([this] { run(); }) {}

void GroupCommit::add(AfterUnlock& after, bool is_awaited) {
  if (is_stopping_) {
    journal_.save();
    journal_.sync();
    return;
  }
  for (auto& action : after.take()) put_off_.push_back(std::move(action));
  is_wanted_ = true;
  is_awaited_ |= is_awaited;
  changed_.notify_all();
}

void GroupCommit::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GroupCommit::run() {
  using Clock = std::chrono::steady_clock;
  // Pauses between writes, as multiples of the time for which a write holds the
  // mutex. So writes hold the mutex for at most a tenth of the time if calls
  // wait for the write, otherwise for a fiftieth.
  constexpr int kPause = 9, kIdlePause = 50;
  Time end = Clock::now();
  Time::duration cost{0};
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_wanted_ || is_stopping_; });
    if (!is_wanted_) return;
    for (;;) {
      const Time due = end + cost * (is_awaited_ ? kPause : kIdlePause);
      if (is_stopping_ || Clock::now() >= due) break;
      changed_.wait_until(lock, due);
    }
    const auto actions = std::exchange(put_off_, {});
    is_wanted_ = is_awaited_ = false;
    const Time begin = Clock::now();
    journal_.save();
    cost = Clock::now() - begin;
    lock.unlock();
    journal_.sync();
    for (const auto& action : actions) action();
    lock.lock();
    end = Clock::now();
  }
}

}  // namespace headroom::coordinator
