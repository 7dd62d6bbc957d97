#include "worker/data/loader/read_ahead.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

namespace headroom::loader {
namespace {

constexpr double kSlow = 1000;  // microseconds

}  // namespace

void ReadingPace::note(std::chrono::microseconds took) {
  // The mean is used, because one slow read does not mean that the disk is
  // slow, and one cached file does not mean that it is fast.
  mean_ +=
      (std::min(static_cast<double>(took.count()), 16 * kSlow) - mean_) / 8;
}

bool ReadingPace::is_slow() const { return mean_ > kSlow; }

ReadAhead::ReadAhead(Read read) : read_(std::move(read)) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::want(const std::vector<int64_t>& samples) {
  const std::lock_guard lock(mutex_);
  for (const int64_t sample : samples) {
    if (num_wanted_++ % kProbe != 0 && !pace_.is_slow()) continue;
    waiting_.push_back(sample);
  }
  while (waiting_.size() > kMostWaiting) waiting_.pop_front();
  const size_t threads = pace_.is_slow() ? kThreads : 1;
  try {
    while (threads_.size() < threads) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The system cannot create more threads: continue with those that exist.
  }
  wanted_.notify_all();
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      wanted_.wait(lock);
      continue;
    }
    const int64_t sample = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    std::optional<std::chrono::microseconds> took;
    try {
      took = read_(sample);
    } catch (const std::exception&) {
      // The failure is ignored: the loader will meet it too and will report it.
    }
    lock.lock();
    if (took) pace_.note(*took);
  }
}

}  // namespace headroom::loader
