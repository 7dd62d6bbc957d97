#include "coordinator/service/call_admission.h"

#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "proto/channel.h"
#include "proto/channel_security.h"
#include "proto/version.h"

namespace headroom::coordinator {
namespace {

using grpc::StatusCode;

StatusCode code_of(RefusalKind kind) {
  switch (kind) {
    case RefusalKind::kWrongToken:
      return StatusCode::UNAUTHENTICATED;
    case RefusalKind::kForeignName:
      return StatusCode::PERMISSION_DENIED;
    case RefusalKind::kMessageTooLong:
    case RefusalKind::kNoRoom:
      return StatusCode::RESOURCE_EXHAUSTED;
    case RefusalKind::kStale:
      return StatusCode::ABORTED;
    case RefusalKind::kNotAsAgreed:
      return StatusCode::FAILED_PRECONDITION;
    // Clients wait a moment and repeat the call.
    case RefusalKind::kNotYet:
    case RefusalKind::kEnding:
      return StatusCode::UNAVAILABLE;
    case RefusalKind::kFailed:
      break;
  }
  return StatusCode::INTERNAL;
}

std::string metadata_of(const grpc::CallbackServerContext& context,
                        const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

grpc::Status status_of(const Answer& refusal) {
  // gRPC sends the text in a header, where a byte that is not printable ASCII
  // takes three bytes. Clients may drop an answer with 8 KiB of headers.
  constexpr size_t kMaxRefusal = 2000;
  return refusal ? grpc::Status(code_of(refusal->kind),
                                shortened(refusal->reason, kMaxRefusal))
                 : grpc::Status::OK;
}

Answer refuse_for(RefusalKind kind, const std::optional<std::string>& reason) {
  if (!reason) return std::nullopt;
  return Refusal{kind, *reason};
}

Answer check_version(const std::string& who, const std::string& version) {
  if (version == wire::kVersion) return std::nullopt;
  return Refusal{RefusalKind::kNotAsAgreed,
                 "coordinator is " + std::string(wire::kVersion) + ", this " +
                     who + " is " +
                     (version.empty() ? "of no version" : version) +
                     ": install the same build on every node"};
}

bool MemberSecrets::prove(const wire::MemberIdentity& identity) const {
  const auto known = secrets_.find(identity.node_id);
  if (known == secrets_.end()) return false;
  if (identity.worker_id.empty()) {
    return wire::equal_secrets(identity.secret, known->second);
  }
  const std::string name = identity.node_id + " " + identity.worker_id;
  const auto formed = workers_secrets_.find(name);
  if (formed != workers_secrets_.end()) {
    return wire::equal_secrets(identity.secret, formed->second);
  }
  const std::string secret =
      wire::secret_of_worker(known->second, identity.worker_id);
  if (!wire::equal_secrets(identity.secret, secret)) return false;
  workers_secrets_.emplace(name, secret);
  return true;
}

Caller CallAdmission::caller_of(
    const grpc::CallbackServerContext& context) const {
  Caller caller;
  caller.peer = context.peer();
  caller.identity = {.node_id = metadata_of(context, wire::kNodeMetadata),
                     .worker_id = metadata_of(context, wire::kWorkerMetadata),
                     .secret = metadata_of(context, wire::kSecretMetadata)};
  caller.is_proved = secrets_.prove(caller.identity);
  return caller;
}

Answer CallAdmission::admit(const grpc::CallbackServerContext& context) const {
  const bool is_known =
      token_.empty() ||
      wire::equal_secrets(metadata_of(context, wire::kTokenMetadata), token_);
  if (is_known) return std::nullopt;
  return Refusal{RefusalKind::kWrongToken, to_string(RefusalKind::kWrongToken)};
}

Answer CallAdmission::check_registration(const Caller& caller,
                                         const std::string& node_id) const {
  constexpr size_t kLeastSecret = 32, kMostSecret = 256;
  const wire::MemberIdentity& said = caller.identity;
  if (secrets_.knows(node_id)) {
    if (caller.is_agent(node_id)) return std::nullopt;
    return Refusal{RefusalKind::kForeignName,
                   "node " + node_id + " is registered already, by another"};
  }
  if (said.node_id == node_id && said.worker_id.empty() &&
      said.secret.size() >= kLeastSecret && said.secret.size() <= kMostSecret) {
    return std::nullopt;
  }
  return Refusal{RefusalKind::kForeignName,
                 cat("a node registers in its own name, with a secret of ",
                     kLeastSecret, " to ", kMostSecret,
                     " characters; this one has ", said.secret.size())};
}

}  // namespace headroom::coordinator
