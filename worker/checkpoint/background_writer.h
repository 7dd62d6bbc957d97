// BackgroundWriter: one job at a time beside training, on a thread of lowest
// priority. Such a thread may not run at all on a busy machine, so whoever has
// to wait for the job does the rest of it. Threads: methods from one thread.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

namespace headroom::checkpoint {

class BackgroundWriter {
 public:
  // Work in pieces, each short.
  class Job {
   public:
    virtual ~Job() = default;
    // Does a piece; false after the last one. An exception ends the job.
    virtual bool advance() = 0;
  };

  BackgroundWriter() = default;
  ~BackgroundWriter() { finish(); }
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // REQUIRES: !is_busy().
  void start(std::shared_ptr<Job> job);
  bool is_busy() const { return job_ != nullptr && !is_done_; }
  // Returns once the job is done.
  void finish();
  // The exception that ended the newest job; null if it is done or still runs.
  std::exception_ptr error() const { return is_busy() ? nullptr : error_; }

 private:
  void run();
  void finish_here();
  bool advance();

  std::shared_ptr<Job> job_;
  std::thread thread_;
  std::atomic<bool> is_done_ = true;
  std::atomic<bool> is_waited_for_ = false;
  std::exception_ptr error_;  // set by whoever does the last piece
};

}  // namespace headroom::checkpoint
