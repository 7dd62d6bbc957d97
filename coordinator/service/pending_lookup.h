// PendingLookup: one Lookup whose key is not there yet. It holds no thread.
//
// Whoever takes it out of the list (the key's publisher, the tick thread when
// its time is over, its client's cancellation, the end of the run) finishes it,
// after the mutex is released; so it is finished once.
//
// Ownership: deletes itself when gRPC is done with it.
// Threads: the reactions take the service's mutex themselves.
#pragma once

#include <grpcpp/grpcpp.h>

#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "coordinator/run/clock.h"
#include "coordinator/service/service.h"

namespace headroom::coordinator {

class CoordinatorService::PendingLookup final
    : public grpc::ServerUnaryReactor {
 public:
  PendingLookup(std::mutex& mutex, std::list<PendingLookup*>& waiting,
                std::string key, TimePoint deadline,
                wire::LookupResponse* response)
      : mutex_(mutex),
        waiting_(waiting),
        key_(std::move(key)),
        deadline_(deadline),
        response_(response) {}

  const std::string& key() const { return key_; }
  TimePoint deadline() const { return deadline_; }
  wire::LookupResponse& response() { return *response_; }

 private:
  void OnCancel() override {
    {
      std::lock_guard lock(mutex_);
      if (waiting_.remove(this) == 0) return;
    }
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

  std::mutex& mutex_;
  std::list<PendingLookup*>& waiting_;
  const std::string key_;
  const TimePoint deadline_;
  wire::LookupResponse* const response_;
};

}  // namespace headroom::coordinator
