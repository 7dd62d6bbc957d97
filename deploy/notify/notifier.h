// Notifier: whoever is told of a run beside its own people, by addresses:
// MLflow and a webhook. It reads the run directory as it grows, on threads of
// its own, and costs the run nothing but kTimeAtEnd at its end.
//
// Credentials for MLflow come from the environment alone:
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD.
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

// What the flags ask for.
struct NotifierRequest {
  std::string mlflow = {};  // an address; "" for none
  std::string experiment = {};
  std::string webhook = {};
};

// The addresses of a request that can be met.
struct Addressees {
  std::optional<WebAddress> mlflow, webhook;
  std::string experiment;
  std::string authorization;  // MLflow's
  std::optional<TrainJobServer> trainjob;
};

// Throws Error (exit 2) for an address that is none, or credentials that would
// travel in the clear.
Addressees addressees_of(const NotifierRequest& request);

class Notifier {
 public:
  struct Run {
    std::filesystem::path directory;
    bool goes_on = false;  // was resumed
    std::function<void(const std::string&)> say;
    // Rises with each Ctrl-C, which ends the wait at the end.
    std::function<int()> interrupts;
    // How far the run is, for a TrainJob; called from any thread.
    std::function<std::optional<TrainProgress>()> progress = {};
  };
  // REQUIRES: the run has not begun to write.
  Notifier(const Addressees& addressees, const Run& run);

  // Returns when all has arrived, after kTimeAtEnd at the latest.
  void finish(const RunEnd& end);

 private:
  const Run run_;
  std::vector<std::unique_ptr<Courier>> couriers_;
};

}  // namespace headroom::notify
