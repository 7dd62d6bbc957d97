// RendezvousClient: one generation's rendezvous map, kept by the coordinator.
//
// Ownership: borrows the stub, which must outlive it.
// Errors: CommunicationError, also where the coordinator refuses: to whoever
// wants to form a generation that is a lost one.
#pragma once

#include <chrono>
#include <string>

#include "parallel/base/key_value_store.h"
#include "proto/coordinator.grpc.pb.h"
#include "worker/control/coordinator_call.h"

namespace headroom::control {

class RendezvousClient final : public KeyValueStore {
 public:
  // `address`: of the coordinator, for messages.
  RendezvousClient(wire::Coordinator::Stub& stub, wire::Stamp stamp,
                   std::string address, Patience patience);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key,
                  std::chrono::milliseconds timeout) override;

 private:
  [[noreturn]] void fail(const std::string& doing, const std::string& key,
                         const grpc::Status& status) const;

  wire::Coordinator::Stub& stub_;
  const wire::Stamp stamp_;
  const std::string address_;
  const Patience patience_;
};

}  // namespace headroom::control
