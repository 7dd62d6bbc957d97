// BeatGatherer: sends the heartbeats of an agent's workers in one request of
// the node, and passes each worker its own answer.
//
// Workers whose channel is closed are not in the request, because they send
// their own heartbeats or have ended.
//
// Threads: any thread may call add(); only the thread that sends the requests
// may call the other methods.
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
  // `channel` is the agent's end of the worker's channel.
  void add(const std::string& worker_id, wire::BeatChannel channel);

  // Adds each worker's newest unsent beat to the request.
  void gather(std::chrono::steady_clock::time_point now,
              wire::HeartbeatRequest& request);
  // Passes the answer on to the workers whose beats were in the request.
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
  // Time of the last gather().
  std::optional<std::chrono::steady_clock::time_point> gathered_;
};

}  // namespace headroom::coordinator
