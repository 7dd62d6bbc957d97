#include "worker/control/report_queue.h"

#include <utility>

#include "parallel/base/log.h"
#include "proto/channel.h"
#include "proto/version.h"
#include "worker/control/coordinator_call.h"

namespace headroom::control {
namespace {

constexpr size_t kMaxQueued = 1000;

}  // namespace

ReportQueue::ReportQueue() : sender_([this] { send_all(); }) {}

ReportQueue::~ReportQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  sender_.join();
}

void ReportQueue::add(Call send) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= kMaxQueued) {
    if (!dropping_) log::warn("the coordinator is away: events are dropped");
    dropping_ = true;
    return;
  }
  dropping_ = false;
  queue_.push_back(std::move(send));
  changed_.notify_all();
}

void ReportQueue::flush(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return queue_.empty(); });
}

void ReportQueue::send_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    const Call send = queue_.front();
    lock.unlock();
    grpc::ClientContext context;
    set_deadline(context, kCallTimeout);
    const grpc::Status status = send(context);
    lock.lock();
    if (!status.ok() && wire::is_unreachable(status)) {
      changed_.wait_for(lock, wire::kHeartbeatInterval,
                        [&] { return ending_; });
      continue;
    }
    if (!status.ok()) {
      log::warn("the coordinator refused a report: " + status.error_message());
    }
    queue_.pop_front();
    if (queue_.empty()) changed_.notify_all();
  }
}

}  // namespace headroom::control
