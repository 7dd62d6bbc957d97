// Converts the coordinator's reply to a beat. Used by workers and agents.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "parallel/base/utf8.h"
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
    const std::string text =
        shortened(status.error_message(), sizeof answer.refusal - 1);
    text.copy(answer.refusal, text.size());
  }
  return answer;
}

}  // namespace headroom::wire
