// ReadAhead: files that are wanted soon are read by threads of their own, so
// that the system has them in memory when the loader's threads, which are as
// many as there are cores, come to them. What is read is thrown away.
//
// On a local disk that is not worth a thread: one file in kProbe is read, and
// only while the first bytes of a file are slow to come (shared and distant
// file systems: milliseconds) are all of them, by kThreads threads at once.
//
// Threads: want() from any. Errors: none; without memory or threads for it
// there is no reading ahead.
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

// Whether files are slow to come, by the times to their first bytes.
class ReadingPace {
 public:
  void note(std::chrono::microseconds took);
  bool is_slow() const;

 private:
  double mean_ = 0;  // microseconds, of some eight newest ones
};

class ReadAhead {
 public:
  static constexpr int kThreads = 32;
  static constexpr int kProbe = 16;
  // More wait for nothing: what is oldest is forgotten.
  static constexpr size_t kMostWaiting = 4096;

  // Brings the file of a sample into the system's memory. Returns the time to
  // its first bytes; nothing where there was nothing to read.
  using Read =
      std::function<std::optional<std::chrono::microseconds>(int64_t sample)>;
  explicit ReadAhead(Read read);
  ~ReadAhead();  // takes the time of one file
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  void want(const std::vector<int64_t>& samples);

 private:
  void work();

  const Read read_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wanted_;
  std::deque<int64_t> waiting_;
  ReadingPace pace_;
  uint64_t num_wanted_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headroom::loader
