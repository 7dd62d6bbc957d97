#include "coordinator/service/beat_gatherer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/base/utf8.h"
#include "proto/beat_answer.h"
#include "proto/convert.h"

namespace headroom::coordinator {
namespace {

using std::chrono::milliseconds;

// A longer pause between two gathers means that the agent was stopped
// (SIGSTOP).
constexpr milliseconds kStandstill{1000};

wire::WorkerBeat message_of(const std::string& worker_id,
                            const wire::Beat& beat,
                            std::chrono::steady_clock::time_point now) {
  wire::WorkerBeat message;
  message.set_worker_id(valid_utf8(worker_id));
  message.set_generation(beat.generation);
  message.set_waits_for_peers(beat.waits_for_peers);
  if (beat.has_progress) {
    *message.mutable_progress() =
        wire::to_message<wire::Progress>(beat.progress);
  }
  const auto age = std::chrono::duration_cast<milliseconds>(now - beat.sent);
  message.set_age_ms(std::max<int64_t>(0, age.count()));
  return message;
}

}  // namespace

void BeatGatherer::add(const std::string& worker_id,
                       wire::BeatChannel channel) {
  const std::lock_guard lock(mutex_);
  workers_.push_back({worker_id, std::move(channel), std::nullopt});
}

void BeatGatherer::gather(std::chrono::steady_clock::time_point now,
                          wire::HeartbeatRequest& request) {
  request.clear_beats();
  const std::lock_guard lock(mutex_);
  const bool stood_still = gathered_ && now - *gathered_ > kStandstill;
  gathered_ = now;
  for (Worker& worker : workers_) {
    while (const auto beat = worker.channel.receive<wire::Beat>({})) {
      worker.newest = beat;
    }
  }
  std::erase_if(workers_,
                [](const Worker& worker) { return !worker.channel.is_open(); });
  for (Worker& worker : workers_) {
    if (!worker.newest) continue;
    // While the agent was stopped, the channels may have been full, so newer
    // beats may be lost.
    if (stood_still && now - worker.newest->sent > kStandstill) {
      worker.newest.reset();
      continue;
    }
    *request.add_beats() = message_of(worker.worker_id, *worker.newest, now);
  }
}

void BeatGatherer::hand_back(const grpc::Status& status,
                             const wire::HeartbeatResponse& response) {
  std::map<std::string, grpc::Status> stale;
  for (const wire::StaleBeat& beat : response.stale_beats()) {
    stale[beat.worker_id()] = {grpc::StatusCode::ABORTED, beat.reason()};
  }
  const std::lock_guard lock(mutex_);
  for (Worker& worker : workers_) {
    if (!worker.newest) continue;
    const auto own = stale.find(worker.worker_id);
    worker.channel.send(wire::answer_to(
        *worker.newest, own == stale.end() ? status : own->second, response));
  }
}

}  // namespace headroom::coordinator
