#include "coordinator/service/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <exception>
#include <vector>

#include "coordinator/service/listen_address.h"
#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  void begin(const std::string& name, const std::string& help,
             MetricType type = MetricType::Gauge) {
    MetricFamily family;
    family.name = "headroom_" + name;
    family.help = help;
    family.type = type;
    families_.push_back(std::move(family));
  }
  void add(double value, const std::string& label = "",
           const std::string& label_value = "") {
    ClientMetric metric;
    if (!label.empty()) metric.label.push_back({label, label_value});
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }
  void one(const std::string& name, const std::string& help, double value) {
    begin(name, help);
    add(value);
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

std::vector<MetricFamily> families_of(
    const RunStatus& status,
    const std::map<std::string, int64_t>& refused_calls) {
  const wire::RunProgress& progress = status.progress;
  Families families;
  families.begin("run_state", "1 for the state the run is in");
  for (const RunPhase state : kRunPhases) {
    families.add(status.state == state ? 1 : 0, "state", to_string(state));
  }
  families.one("generation", "number of the generation",
               static_cast<double>(status.generation));
  families.one("steps", "steps committed", static_cast<double>(progress.step));
  families.one("planned_steps", "steps of the whole run",
               static_cast<double>(progress.num_steps));
  families.one("epoch", "the running epoch, from 0",
               static_cast<double>(progress.epoch));
  families.one("images_per_second", "of all ranks, in the newest step",
               progress.images_per_second);
  families.begin("loss", "mean over the epoch so far");
  for (const NamedLoss& loss : progress.losses) {
    families.add(loss.value, "term", loss.name);
  }
  families.begin("workers", "workers by state");
  for (const MemberActivity state : kMemberActivities) {
    int64_t count = 0;
    for (const MemberStatus& member : status.members) {
      count += member.state == state ? 1 : 0;
    }
    families.add(static_cast<double>(count), "state", to_string(state));
  }
  families.begin("heartbeat_age_seconds", "since a rank was last heard");
  for (const MemberStatus& member : status.members) {
    if (member.state != MemberActivity::kRunning) continue;
    families.add(member.heartbeat_age_seconds, "rank",
                 std::to_string(member.rank));
  }
  families.begin("peak_bytes", "most tensor memory of a rank's newest step");
  for (const MemberStatus& member : status.members) {
    if (member.state != MemberActivity::kRunning) continue;
    families.add(static_cast<double>(member.measured_peak_bytes), "rank",
                 std::to_string(member.rank));
  }
  families.begin("refused_calls_total",
                 "calls and connections that were refused",
                 MetricType::Counter);
  for (const auto& [reason, count] : refused_calls) {
    families.add(static_cast<double>(count), "reason", reason);
  }
  return families.take();
}

class Source final : public prometheus::Collectable {
 public:
  explicit Source(MetricsSource source) : source_(std::move(source)) {}
  std::vector<MetricFamily> Collect() const override {
    return families_of(source_.status(), source_.refused_calls());
  }

 private:
  const MetricsSource source_;
};

}  // namespace

std::string metrics_text(const RunStatus& status,
                         const std::map<std::string, int64_t>& refused_calls) {
  return prometheus::TextSerializer().Serialize(
      families_of(status, refused_calls));
}

struct MetricsEndpoint::Implementation {
  Implementation(const std::string& address, const MetricsSource& given)
      : source(std::make_shared<Source>(given)),
        // The timeouts limit how long a connection without a request occupies a
        // thread. Waiting threads cost almost nothing.
        exposer(std::vector<std::string>{
            "listening_ports", address, "num_threads", "64",
            "request_timeout_ms", "250", "keep_alive_timeout_ms", "250"}) {
    exposer.RegisterCollectable(source);
  }
  std::shared_ptr<Source> source;
  prometheus::Exposer exposer;
};

MetricsEndpoint::MetricsEndpoint(const std::string& address,
                                 const MetricsSource& source) {
  const ListenAddress listen = parse_listen_address(address);
  if (const std::string why = binding_error(listen); !why.empty()) {
    throw Error("metrics", "cannot listen on " + address + ": " + why,
                "choose another address with --metrics HOST:PORT");
  }
  try {
    implementation_ = std::make_unique<Implementation>(address, source);
  } catch (const std::exception& error) {
    throw Error("metrics", "cannot listen on " + address + ": " + error.what(),
                "choose another address with --metrics HOST:PORT");
  }
}

MetricsEndpoint::~MetricsEndpoint() = default;

int MetricsEndpoint::port() const {
  return implementation_->exposer.GetListeningPorts().front();
}

}  // namespace headroom::coordinator
