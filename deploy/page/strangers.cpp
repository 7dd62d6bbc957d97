#include "deploy/page/strangers.h"

#include <sys/socket.h>

#include <memory>

namespace headroom::page {
namespace {

void end(Strangers::Visitor& visitor) {
  if (visitor.is_ended) return;
  visitor.is_ended = true;
  ::shutdown(visitor.socket, SHUT_RDWR);
}

}  // namespace

Strangers::Strangers(size_t most, std::chrono::milliseconds head_time)
    : most_(most), head_time_(head_time), thread_([this] { watch(); }) {}

Strangers::~Strangers() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Strangers::Visitor* Strangers::arrived(int socket) {
  auto visitor = std::make_unique<Visitor>();
  visitor->socket = socket;
  visitor->arrival = Clock::now();
  const std::lock_guard lock(mutex_);
  // Connections that were ended do not count: the server closes them soon.
  size_t open = 0;
  for (const Visitor* other : strangers_) open += other->is_ended ? 0 : 1;
  for (auto oldest = strangers_.begin();
       open >= most_ && oldest != strangers_.end(); ++oldest) {
    if ((*oldest)->is_ended) continue;
    end(**oldest);
    --open;
  }
  visitor->place = strangers_.insert(strangers_.end(), visitor.get());
  changed_.notify_all();
  return visitor.release();
}

bool Strangers::asked(Visitor& visitor, bool has_token) {
  const std::lock_guard lock(mutex_);
  visitor.has_asked = true;
  if (has_token && !visitor.is_known) {
    visitor.is_known = true;
    strangers_.erase(visitor.place);
  }
  return !visitor.is_known;
}

void Strangers::left(Visitor* visitor) {
  const std::unique_ptr<Visitor> gone(visitor);
  const std::lock_guard lock(mutex_);
  if (!gone->is_known) strangers_.erase(gone->place);
}

void Strangers::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const Clock::time_point now = Clock::now();
    auto next = Clock::time_point::max();
    for (Visitor* visitor : strangers_) {
      if (visitor->has_asked || visitor->is_ended) continue;
      if (now - visitor->arrival >= head_time_) {
        end(*visitor);
      } else {
        // Strangers are in the order of arrival, so this one is the next whose
        // time ends.
        next = visitor->arrival + head_time_;
        break;
      }
    }
    if (next == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

}  // namespace headroom::page
