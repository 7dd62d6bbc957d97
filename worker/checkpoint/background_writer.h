// BackgroundWriter: runs one job at a time while training continues, on a
// thread of lowest priority. On a busy machine such a thread may not run at
// all, so finish() does the rest of the job on the calling thread. Threads:
// call all methods from one thread.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

namespace headroom::checkpoint {

class BackgroundWriter {
 public:
  // A job in short pieces.
  class Job {
   public:
    virtual ~Job() = default;
    // Does one piece; returns false after the last one. An exception ends the
    // job.
    virtual bool advance() = 0;
  };

  BackgroundWriter() = default;
  ~BackgroundWriter() { finish(); }
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // REQUIRES: !is_busy().
  void start(std::shared_ptr<Job> job);
  bool is_busy() const { return job_ != nullptr && !is_done_; }
  // Waits until the job is done, doing the rest of it on this thread.
  void finish();
  // The exception that ended the newest job; nullptr if there was none or the
  // job is still running.
  std::exception_ptr error() const { return is_busy() ? nullptr : error_; }

 private:
  void run();
  void finish_here();
  bool advance();

  std::shared_ptr<Job> job_;
  std::thread thread_;
  std::atomic<bool> is_done_ = true;
  std::atomic<bool> is_waited_for_ = false;
  std::exception_ptr error_;  // set by the thread that does the last piece
};

}  // namespace headroom::checkpoint
