// CallAdmission: who makes a call, and whether it is let in: by the join token,
// and as a member by its secret.
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

// Nothing if the call is done as asked.
using Answer = std::optional<Refusal>;

grpc::Status status_of(const Answer& refusal);
// A refusal of that kind where there is a reason for one.
Answer refuse_for(RefusalKind kind, const std::optional<std::string>& reason);
// `who`: "agent" or "worker".
Answer check_version(const std::string& who, const std::string& version);

// The secrets with which agents registered, by node_id.
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
  // Whether the secret is that of the node, or of the worker of that node.
  bool prove(const wire::MemberIdentity& identity) const;
  const std::map<std::string, std::string>& by_node() const { return secrets_; }

 private:
  std::map<std::string, std::string> secrets_;
  // The secrets of workers that have proved their name, because deriving one is
  // slow.
  mutable std::unordered_map<std::string, std::string> workers_secrets_;
};

// Who makes a call.
struct Caller {
  std::string peer;               // gRPC's name of the caller
  wire::MemberIdentity identity;  // the caller's own words
  bool is_proved = false;

  // Proved to be this worker; this node's agent.
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
  // `token`: that callers must know; "" lets everybody in.
  explicit CallAdmission(std::string token) : token_(std::move(token)) {}

  Caller caller_of(const grpc::CallbackServerContext& context) const;
  // Whether the caller knows the token.
  Answer admit(const grpc::CallbackServerContext& context) const;
  // Whether the caller may register as this node: the first time with a secret
  // that it chooses, from then on with the same.
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
