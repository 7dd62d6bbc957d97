// Notifier: sends a run's news to services: MLflow, a webhook and Kubeflow's
// TrainJob. It reads the run directory as it grows, on its own threads, and
// delays the run only at its end, by at most kTimeAtEnd.
//
// MLflow's credentials come only from the environment: MLFLOW_TRACKING_TOKEN,
// or MLFLOW_TRACKING_USERNAME and _PASSWORD.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/notify/courier.h"
#include "deploy/notify/trainjob.h"
#include "deploy/notify/web_client.h"

namespace headroom::notify {

inline constexpr auto kTimeAtEnd = std::chrono::seconds(10);

// The values of the flags.
struct NotifierRequest {
  std::string mlflow = {};  // an address; "" without the flag
  std::string experiment = {};
  std::string webhook = {};
};

// The checked addresses of a request.
struct Addressees {
  std::optional<WebAddress> mlflow, webhook;
  std::string experiment;
  std::string authorization;  // for MLflow
  std::optional<TrainJobServer> trainjob;
};

// Throws Error (exit 2) for an invalid address, or unencrypted credentials.
Addressees addressees_of(const NotifierRequest& request);

class Notifier {
 public:
  struct Run {
    std::filesystem::path directory;
    bool goes_on = false;  // the run was resumed
    std::function<void(const std::string&)> say;
    // The number of interrupts (Ctrl-C); a further one ends finish()'s wait.
    std::function<int()> interrupts;
    // The run's progress, for a TrainJob; called from any thread.
    std::function<std::optional<TrainProgress>()> progress = {};
  };
  // REQUIRES: the run has not begun to write.
  Notifier(const Addressees& addressees, const Run& run);

  // Returns when everything has arrived, after kTimeAtEnd at the latest.
  void finish(const RunEnd& end);

 private:
  const Run run_;
  std::vector<std::unique_ptr<Courier>> couriers_;
};

}  // namespace headroom::notify
