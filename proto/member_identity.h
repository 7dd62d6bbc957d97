// MemberIdentity: the identity of the coordinator's caller, and its secret.
//
// An agent draws a secret when it starts and sends it when it registers; the
// coordinator stores it. Each worker's secret is derived from its agent's: the
// agent passes it to the worker, and the coordinator computes it. The
// coordinator refuses a call made in another member's name.
#pragma once

#include <string>

namespace headroom::wire {

struct MemberIdentity {
  std::string node_id;    // "" for a user's command
  std::string worker_id;  // "" for an agent
  std::string secret;
};

// Environment variable in which an agent passes a worker its secret.
inline constexpr const char* kSecretVariable = "HEADROOM_MEMBER_SECRET";

// Draws an agent's secret: 64 random hexadecimal digits.
std::string new_member_secret();
// A worker's secret: HMAC-SHA256 of its name, keyed with its agent's secret.
std::string secret_of_worker(const std::string& agent_secret,
                             const std::string& worker_id);

}  // namespace headroom::wire
