// ReportQueue: sends commits and events to the coordinator, in order.
//
// Training does not wait for the reports. While the coordinator is unreachable,
// up to 1,000 reports are queued; further reports are dropped, with one
// warning.
//
// Ownership: owns a thread, which the destructor stops; reports that have not
// been sent by then are lost. Threads: any. Errors: none; a refused report is a
// warning in the log.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace headroom::control {

class ReportQueue {
 public:
  using Call = std::function<grpc::Status(grpc::ClientContext&)>;

  ReportQueue();
  ~ReportQueue();

  void add(Call send);
  // Waits until all reports are sent, but at most `timeout`.
  void flush(std::chrono::milliseconds timeout);

 private:
  void send_all();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> queue_;
  bool dropping_ = false;
  bool ending_ = false;
  std::thread sender_;
};

}  // namespace headroom::control
