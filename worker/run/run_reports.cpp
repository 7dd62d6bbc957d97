#include "worker/run/run_reports.h"

#include <algorithm>
#include <cstddef>

#include "parallel/base/convolution_workspaces.h"
#include "worker/run/run_milestones.h"

namespace headroom::run {

namespace {

// Median of the newest steps' milliseconds; `durations` has their seconds.
int64_t note_duration(std::vector<double>& durations, double seconds) {
  constexpr size_t kRemembered = 21;
  durations.push_back(seconds);
  if (durations.size() > kRemembered) durations.erase(durations.begin());
  std::vector<double> sorted = durations;
  const auto middle =
      sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return static_cast<int64_t>(*middle * 1000);
}

bool is_warning(const memory::StepEvent& event,
                const configs::RunConfig& config) {
  return event.kind == "out_of_memory" || event.kind == "memory_prediction" ||
         (event.kind == "label_bound" && config.memory_limit > 0);
}

}  // namespace

RunReports::RunReports(RunContext& run, step::FaultInjection& faults)
    : run_(run), faults_(faults) {}

void RunReports::begin() {
  const loader::LoaderOptions sizes =
      step::loader_options(run_.config, run_.state->model());
  progress_.phase = "start";
  progress_.num_steps = num_steps(run_.config, run_.steps_in_epoch);
  progress_.num_epochs = run_.config.epochs;
  progress_.steps_per_epoch = run_.steps_in_epoch;
  progress_.image_height = sizes.image_height;
  progress_.image_width = sizes.image_width;
  if (!run_.device.is_cpu()) note_device();
}

void RunReports::show_phase(const std::string& phase) {
  progress_.phase = phase;
  run_.client.set_progress(progress_);
}

void RunReports::commit(const StepRecord& newest) {
  const step::EpochMeter& meter = run_.state->counters.meter;
  const int rank = run_.assignment.rank;
  if (run_.config.multi_scale) {
    progress_.image_height = newest.image_height;
    progress_.image_width = newest.image_width;
  }
  progress_.step = run_.committed();
  progress_.epoch = newest.epoch;
  progress_.step_in_epoch = newest.step % run_.steps_in_epoch + 1;
  progress_.box = meter.box;
  progress_.obj = meter.obj;
  progress_.cls = meter.cls;
  progress_.images_per_second = newest.images_per_second;
  progress_.measured_peak_bytes = newest.result.measured_peak_bytes[rank];
  progress_.median_step_ms = note_duration(durations_, newest.seconds);
  progress_.predicted_peak_bytes = newest.result.predicted_peak_bytes[rank];
  show_phase("train");
  if (rank != 0) return;
  run_.client.commit(run_.committed(), newest.result.loss, progress_);
}

void RunReports::say_once(const std::vector<std::string>& faults) {
  for (const std::string& fault : faults) {
    if (!faults_said_.insert(fault).second) continue;
    run_.client.report_event(
        {"data", run_.committed(), run_.assignment.rank, fault, "", true});
  }
}

void RunReports::report(int64_t step, const memory::StepEvent& event) {
  run_.client.report_event({event.kind, step, run_.assignment.rank,
                            event.reason, event.detail_json,
                            is_warning(event, run_.config)});
}

memory::MemoryRetry RunReports::retry(const std::string& phase) {
  return {phase,
          [this](const memory::StepEvent& event) {
            report(run_.committed(), event);
          },
          run_.device};
}

void RunReports::begin_phase(configs::Fault::Phase phase, int64_t step) {
  faults_.begin(phase, step);
}

void RunReports::end_phase(int64_t step) {
  if (const auto fault = faults_.end()) {
    report(step, {"fault", step::describe(*fault)});
  }
}

memory::PhaseMemory RunReports::note_memory(
    const memory::MemoryComparison& comparison) {
  if (comparison.is_more() && exceeded_.insert(comparison.phase).second) {
    report(run_.committed(), memory::memory_prediction_event(comparison));
  }
  if (!has_peers_) return {};
  const memory::PhaseMemory all =
      memory::gather_memory(run_.mesh->world, comparison);
  run_.recorder->record_memory(all);
  return all;
}

void RunReports::note_device() {
  DeviceMemoryLine line;
  line.footprint = run_.footprint;
  line.workspace = convolution_workspaces().largest_bytes();
  line.tensors = run_.segments.planned.tensor_bytes;
  line.segments = run_.segments.planned.segment_bytes;
  line.room =
      room_now(run_.device, run_.config.memory_limit, run_.footprint).bytes;
  const std::vector<DeviceMemoryLine> ranks =
      gather_device_memory(run_.mesh->world, line);
  run_.recorder->record_device_memory(ranks);
  if (run_.assignment.rank != 0) return;
  const memory::StepEvent event = device_memory_event(ranks);
  run_.client.report_event({event.kind, run_.committed(), fullest_rank(ranks),
                            event.reason, event.detail_json,
                            any_lacks_room(ranks)});
}

// Libraries load their kernels, and connections are made, in a first step.
void RunReports::note_first_step() {
  if (!run_.before_steps) return;
  run_.footprint.libraries += run_.before_steps->taken_since().value_or(0);
  run_.before_steps.reset();
  run_.segments = memory::step_segments(run_.memory, run_.mesh->here);
  if (run_.config.memory_limit > 0) {
    run_.device.memory().set_limit(std::max<int64_t>(
        1, run_.config.memory_limit - run_.footprint.total()));
  }
  note_device();
}

}  // namespace headroom::run
