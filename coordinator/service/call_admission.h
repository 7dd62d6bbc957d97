// CallAdmission: checks the caller of each call: the join token, and for
// members the member's secret.
//
// Threads: none of its own; the service's mutex is held in every call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "coordinator/run/clock.h"
#include "coordinator/service/refusals.h"
#include "proto/member_identity.h"

namespace headroom::coordinator {

// The refusal of a call; empty if the call is accepted.
using Answer = std::optional<Refusal>;

grpc::Status status_of(const Answer& refusal);
// Returns a refusal of `kind` if there is a `reason`, else no value.
Answer refuse_for(RefusalKind kind, const std::optional<std::string>& reason);
// Refuses a caller of another version; `who` is "agent" or "worker".
Answer check_version(const std::string& who, const std::string& version);

// The agents' secrets from their registration, by node_id.
class MemberSecrets {
 public:
  void remember(const std::string& node_id, const std::string& secret) {
    if (std::exchange(secrets_[node_id], secret) != secret) {
      workers_secrets_.clear();
    }
  }
  bool knows(const std::string& node_id) const {
    return secrets_.contains(node_id);
  }
  // Whether the identity contains the secret of the agent or worker that it
  // names.
  bool prove(const wire::MemberIdentity& identity) const;
  const std::map<std::string, std::string>& by_node() const { return secrets_; }

 private:
  std::map<std::string, std::string> secrets_;
  // Secrets of workers that have passed the check, kept because deriving a
  // secret is slow.
  mutable std::unordered_map<std::string, std::string> workers_secrets_;
};

// The caller of a call.
struct Caller {
  std::string peer;               // gRPC's name of the caller
  wire::MemberIdentity identity;  // claimed by the caller
  bool is_proved = false;

  // Whether the caller has proved that it is this worker, or this node's agent.
  bool is_worker(const std::string& worker_id) const {
    return is_proved && !worker_id.empty() && identity.worker_id == worker_id;
  }
  bool is_agent(const std::string& node_id) const {
    return is_proved && identity.worker_id.empty() &&
           identity.node_id == node_id;
  }
};

class CallAdmission {
 public:
  // `token`: required from callers; "" admits every caller.
  explicit CallAdmission(std::string token) : token_(std::move(token)) {}

  // Whether callers need a token.
  bool has_token() const { return !token_.empty(); }
  Caller caller_of(const grpc::CallbackServerContext& context) const;
  // Refuses a caller without the token.
  Answer admit(const grpc::CallbackServerContext& context) const;
  // Refuses a registration whose secret differs from the secret of the node's
  // first registration.
  Answer check_registration(const Caller& caller,
                            const std::string& node_id) const;

  MemberSecrets& secrets() { return secrets_; }
  Refusals& refusals() { return refusals_; }

 private:
  const std::string token_;
  Refusals refusals_;
  MemberSecrets secrets_;
};

}  // namespace headroom::coordinator
