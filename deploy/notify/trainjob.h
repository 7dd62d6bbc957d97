// TrainJob: reports a run's progress to Kubeflow Trainer 2, which shows it in
// `kubectl get trainjob`. Trainer's control plane (feature gate TrainJobStatus,
// alpha) gives every pod an address, the certificate of an authority, and a
// token:
//
//   KUBEFLOW_TRAINER_SERVER_URL       where to POST
//   KUBEFLOW_TRAINER_SERVER_CA_CERT   a file
//   KUBEFLOW_TRAINER_SERVER_TOKEN     a file that is replaced from time to
//                                     time, so it is read for each request
//
//   {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds":
//    120, "metrics": [{"name": "box_loss", "value": "0.0412"}, ...],
//    "lastUpdatedTime": "2026-11-26T12:00:00Z"}}
//
// At most one request in 5 s. A failed request is not repeated, because the
// next one contains newer values. At the run's end one request is tried, for 3
// s.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deploy/notify/courier.h"
#include "deploy/notify/web_client.h"

namespace headroom::notify {

struct TrainJobServer {
  WebAddress address;
  std::filesystem::path authority, token;
};

// Returns nullopt outside a TrainJob. Throws Error (exit 2) if a variable is
// missing, or if the address is neither https:// nor loopback.
std::optional<TrainJobServer> trainjob_server(
    const std::map<std::string, std::string>& environment);

// The progress of a run.
struct TrainProgress {
  int64_t step = 0, num_steps = 0;  // num_steps is 0 while unknown
  int64_t epoch = 0, num_epochs = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

// The request's body. `seconds` is the remaining time; nullopt if unknown.
std::string trainer_status(const TrainProgress& progress,
                           std::optional<double> seconds,
                           const std::string& time);

class TrainJob : public Delivery {
 public:
  static constexpr std::chrono::seconds kInterval{5};

  // `progress` is called from the courier's thread.
  TrainJob(TrainJobServer server,
           std::function<std::optional<TrainProgress>()> progress);

  std::vector<std::string> advance(const RunEnd* end,
                                   std::chrono::milliseconds limit) override;
  std::string left(const RunEnd* end) const override;
  void cut() override { client_.cut(); }
  void stop() override { client_.stop(); }

 private:
  using Clock = std::chrono::steady_clock;

  void post(const RunEnd* end, std::chrono::milliseconds limit);
  std::optional<double> remaining_seconds(const TrainProgress& progress);

  const TrainJobServer server_;
  const std::function<std::optional<TrainProgress>()> progress_;
  WebClient client_;
  std::optional<Clock::time_point> last_try_;
  std::optional<std::pair<Clock::time_point, int64_t>> first_step_;
  bool has_tried_end_ = false;
};

}  // namespace headroom::notify
