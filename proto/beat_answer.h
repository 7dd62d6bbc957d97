// Converts the coordinator's reply to a beat. Used by workers and agents.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdio>

#include "proto/beat_channel.h"
#include "proto/channel.h"
#include "proto/coordinator.pb.h"

namespace headroom::wire {

inline BeatAnswer answer_to(const Beat& beat, const grpc::Status& status,
                            const HeartbeatResponse& response) {
  BeatAnswer answer;
  answer.generation = beat.generation;
  answer.is_there = !is_unreachable(status);
  if (status.ok()) {
    answer.stop_requested = response.stop_requested();
    answer.leave_requested = response.leave_requested();
    answer.peer_lost = response.peer_lost();
    answer.a_peer_works = response.a_peer_works();
  } else if (status.error_code() == grpc::StatusCode::ABORTED) {
    std::snprintf(answer.refusal, sizeof answer.refusal, "%s",
                  status.error_message().c_str());
  }
  return answer;
}

}  // namespace headroom::wire
