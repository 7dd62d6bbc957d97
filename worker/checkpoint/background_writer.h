// BackgroundWriter: one job at a time beside training, on a thread that gets
// what the others leave.
//
// Whoever has to wait for it does the rest of the job itself: a thread of
// lowest priority may not come to run at all on a busy machine.
//
// Ownership: shares the job; joins its thread.
// Threads: methods from one thread.
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
    // Does a piece; false: it was the last one. What it throws is its end.
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
  // What ended the newest job; null: it is done, or not yet.
  std::exception_ptr error() const { return is_busy() ? nullptr : error_; }

 private:
  void run();
  void finish_here();
  bool advance();

  std::shared_ptr<Job> job_;
  std::thread thread_;
  std::atomic<bool> is_done_ = true;
  std::atomic<bool> is_waited_for_ = false;
  std::exception_ptr error_;  // by whoever does the last piece
};

}  // namespace headroom::checkpoint
