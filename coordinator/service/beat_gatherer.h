// BeatGatherer: an agent's side of its workers' heartbeats: one request of the
// node carries those of all its workers, and each worker gets its own answer.
//
// A worker whose channel has ended is left out: it sends its own heartbeats, or
// has ended.
//
// Threads: add() from any; the others from the one that sends.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "proto/beat_channel.h"
#include "proto/coordinator.pb.h"

namespace headroom::coordinator {

class BeatGatherer {
 public:
  // `channel`: the agent's end.
  void add(const std::string& worker_id, wire::BeatChannel channel);

  // Puts the newest beat of each worker that has sent one into the request.
  void gather(std::chrono::steady_clock::time_point now,
              wire::HeartbeatRequest& request);
  // Passes the answer to that request on to the workers whose beats were in it.
  void hand_back(const grpc::Status& status,
                 const wire::HeartbeatResponse& response);

 private:
  struct Worker {
    std::string worker_id;
    wire::BeatChannel channel;
    std::optional<wire::Beat> newest;
  };

  std::mutex mutex_;
  std::vector<Worker> workers_;
  std::optional<std::chrono::steady_clock::time_point> gathered_;  // last
};

}  // namespace headroom::coordinator
