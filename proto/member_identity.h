// MemberIdentity: who a caller of the coordinator is, and the secret that
// proves it.
//
// An agent draws a secret when it starts and registers with it; the coordinator
// remembers it. Each of its workers has a secret of its own that follows from
// the agent's, so that nobody but the agent has to hand it out. The coordinator
// believes nobody who speaks in the name of another member.
#pragma once

#include <string>

namespace headroom::wire {

struct MemberIdentity {
  std::string node_id;    // "" for people
  std::string worker_id;  // "" for an agent
  std::string secret;
};

// The environment variable in which an agent hands a worker its secret.
inline constexpr const char* kSecretVariable = "HEADROOM_MEMBER_SECRET";

// An agent's: 64 random hexadecimal digits.
std::string new_member_secret();
// HMAC-SHA256 of the worker's name, keyed with its agent's secret.
std::string secret_of_worker(const std::string& agent_secret,
                             const std::string& worker_id);

}  // namespace headroom::wire
