// ReadAhead: reads files that will be needed soon, on threads of its own, so
// that the system has them in its cache when the loader's threads read them.
// The loader has only as many threads as cores. The content that is read here
// is discarded.
//
// On a local disk, reading ahead is not worth the threads. So only one file
// in kProbe is read as a sample. If the first bytes of these files take
// milliseconds to arrive, as on shared and remote file systems, all files are
// read, by kThreads threads at once.
//
// Threads: want() may be called from any thread. Errors: none; if memory or
// threads run out, less is read ahead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace headroom::loader {

// Decides from the time to the first bytes whether files are slow to read.
class ReadingPace {
 public:
  void note(std::chrono::microseconds took);
  bool is_slow() const;

 private:
  double mean_ = 0;  // microseconds, over about the last eight reads
};

class ReadAhead {
 public:
  static constexpr int kThreads = 32;
  static constexpr int kProbe = 16;
  // If more samples are waiting, the oldest are dropped.
  static constexpr size_t kMostWaiting = 4096;

  // Reads the file of a sample into the system's cache. Returns the time to its
  // first bytes, or nullopt if nothing had to be read.
  using Read =
      std::function<std::optional<std::chrono::microseconds>(int64_t sample)>;
  explicit ReadAhead(Read read);
  ~ReadAhead();  // waits for at most one file per thread
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void want(const std::vector<int64_t>& samples);

 private:
  void work();

  const Read read_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wanted_;
  std::deque<int64_t> waiting_;
  ReadingPace pace_;
  uint64_t num_wanted_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headroom::loader
