// Metrics of a run for Prometheus: the numbers of RunStatus on an HTTP port.
//
//   headroom_run_state{state}                 1 for the run's current state
//   headroom_generation, headroom_steps, headroom_planned_steps, headroom_epoch
//   headroom_images_per_second, headroom_loss{term}
//   headroom_workers{state}
//   headroom_heartbeat_age_seconds{rank}, headroom_peak_bytes{rank}
//   headroom_refused_calls_total{reason}
//
// Labels have few values: never a step, a name or a path.
//
// Threads: the endpoint calls `source` from its own threads.
// Errors: Error (exit 2) if the address cannot be listened on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/run/run_status.h"

namespace headroom::coordinator {

struct MetricsSource {
  std::function<RunStatus()> status;
  std::function<std::map<std::string, int64_t>()> refused_calls;
};

// The metrics in Prometheus's text format.
std::string metrics_text(const RunStatus& status,
                         const std::map<std::string, int64_t>& refused_calls);

// Answers GET /metrics as long as the object exists.
class MetricsEndpoint {
 public:
  // `address`: HOST:PORT.
  MetricsEndpoint(const std::string& address, const MetricsSource& source);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::coordinator
