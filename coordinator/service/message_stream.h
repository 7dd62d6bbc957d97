// MessageStream: a stream to a client that writes whenever its source has a
// message. AfterUnlock: gRPC calls that start after the mutex is released.
//
// gRPC may run a reaction inside the call that starts an operation, and
// reactions lock the service's mutex. So an operation never starts while the
// mutex is held; it is put into an AfterUnlock that is declared before the
// lock.
//
// Ownership: a stream deletes itself when gRPC is done with it. Threads: the
// mutex is held in all methods except reactions. Invariants: 1. at most one
// write is in flight, and Finish is called only while no write is in flight; 2.
// a delayed operation counts as in flight, so the stream outlives it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace headroom::coordinator {

class AfterUnlock {
 public:
  AfterUnlock() = default;
  AfterUnlock(const AfterUnlock&) = delete;
  AfterUnlock& operator=(const AfterUnlock&) = delete;
  ~AfterUnlock() {
    for (const auto& action : actions_) action();
  }
  void add(std::function<void()> action) {
    actions_.push_back(std::move(action));
  }
  // Returns the actions, which the caller must start.
  std::vector<std::function<void()>> take() {
    return std::exchange(actions_, {});
  }
  bool is_empty() const { return actions_.empty(); }

 private:
  std::vector<std::function<void()>> actions_;
};

template <typename Message>
class MessageStream final : public grpc::ServerWriteReactor<Message> {
 public:
  // Fills the next message; returns false if there is none now.
  using Source = std::function<bool(Message*)>;
  // Called once, with the mutex held, when the client is gone or the stream
  // has ended; the stream must not be used afterwards.
  using Closed = std::function<void(AfterUnlock&)>;

  MessageStream(std::mutex& mutex, Source source, Closed closed)
      : mutex_(mutex), source_(std::move(source)), closed_(std::move(closed)) {}

  // Starts the next write if none is in flight.
  void pump(AfterUnlock& after) {
    if (in_flight_ || finished_) return;
    if (!cancelled_ && source_(&message_)) {
      in_flight_ = true;
      after.add([this] { this->StartWrite(&message_); });
    } else if (cancelled_ || closing_) {
      finished_ = true;
      after.add([this] { this->Finish(status_); });
    }
  }

  // Ends the stream once its source is empty.
  void close(AfterUnlock& after, const grpc::Status& status) {
    closing_ = true;
    status_ = status;
    pump(after);
  }

 private:
  void OnWriteDone(bool ok) override {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    in_flight_ = false;
    if (!ok) cancelled_ = true;
    pump(after);
  }

  void OnCancel() override {
    AfterUnlock after;
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    report_closed(after);
    pump(after);
  }

  void OnDone() override {
    {
      AfterUnlock after;
      std::lock_guard lock(mutex_);
      report_closed(after);
    }
    delete this;
  }

  void report_closed(AfterUnlock& after) {
    if (auto closed = std::exchange(closed_, nullptr)) closed(after);
  }

  std::mutex& mutex_;
  Source source_;
  Closed closed_;
  Message message_;
  grpc::Status status_;
  bool in_flight_ = false;
  bool closing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

// A stream that is refused at its start.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace headroom::coordinator
