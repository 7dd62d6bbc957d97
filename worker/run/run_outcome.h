// RunOutcome: how a run ended that ended as it should.
//
// Threads: a value.
#pragma once

#include <optional>
#include <string>

#include "worker/control/coordinator_client.h"

namespace headroom::run {

struct RunOutcome {
  int exit_code = 0;
  std::string reason;
  std::string result_json;
  // Only this generation ended: for want of memory (without room_bytes), or
  // because it was asked to.
  std::optional<control::LeftGeneration> left = {};
};

}  // namespace headroom::run
