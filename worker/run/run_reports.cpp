#include "worker/run/run_reports.h"

#include <algorithm>
#include <cstddef>

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
  return event.kind == EventKind::kOutOfMemory ||
         event.kind == EventKind::kMemoryPrediction ||
         (event.kind == EventKind::kLabelBound && config.memory_limit > 0);
}

}  // namespace

RunReports::RunReports(const Inputs& inputs) : in_(inputs) {
  progress_.phase = wire::WorkerPhase::kStart;
  progress_.num_steps = in_.num_steps;
  progress_.num_epochs = in_.config.epochs;
  progress_.steps_per_epoch = in_.steps_in_epoch;
  progress_.image_height = in_.image_height;
  progress_.image_width = in_.image_width;
}

void RunReports::show_phase(wire::WorkerPhase phase) {
  progress_.phase = phase;
  progress_.images_validated = progress_.images_to_validate = 0;
  in_.client.set_progress(progress_);
}

void RunReports::show_validation(int64_t images, int64_t all) {
  progress_.images_validated = images;
  progress_.images_to_validate = all;
  in_.client.set_progress(progress_);
}

void RunReports::commit(const StepRecord& newest) {
  const step::EpochMeter& meter = in_.counters.meter;
  const int rank = in_.rank;
  if (in_.config.multi_scale) {
    progress_.image_height = newest.image_height;
    progress_.image_width = newest.image_width;
  }
  progress_.step = committed();
  progress_.epoch = newest.epoch;
  progress_.step_in_epoch = newest.step % in_.steps_in_epoch + 1;
  progress_.box = meter.box;
  progress_.obj = meter.obj;
  progress_.cls = meter.cls;
  progress_.images_per_second = newest.images_per_second;
  progress_.measured_peak_bytes = newest.result.measured_peak_bytes[rank];
  progress_.median_step_ms = note_duration(durations_, newest.seconds);
  progress_.predicted_peak_bytes = newest.result.predicted_peak_bytes[rank];
  show_phase(wire::WorkerPhase::kTrain);
  if (rank != 0) return;
  in_.client.commit(committed(), newest.result.loss, progress_);
}

void RunReports::say_once(const std::vector<std::string>& faults) {
  for (const std::string& fault : faults) {
    if (!faults_said_.insert(fault).second) continue;
    in_.client.report_event({.event = EventKind::kData,
                             .step = committed(),
                             .rank = in_.rank,
                             .reason = fault,
                             .warning = true});
  }
}

void RunReports::report(int64_t step, const memory::StepEvent& event) {
  in_.client.report_event({.event = event.kind,
                           .step = step,
                           .rank = in_.rank,
                           .reason = event.reason,
                           .detail_json = event.detail_json,
                           .warning = is_warning(event, in_.config)});
}

memory::MemoryRetry RunReports::retry(const std::string& phase) {
  return {
      phase,
      [this](const memory::StepEvent& event) { report(committed(), event); },
      in_.device.device()};
}

void RunReports::begin_phase(configs::Fault::Phase phase, int64_t step) {
  in_.faults.begin(phase, step);
}

void RunReports::end_phase(int64_t step) {
  if (const auto fault = in_.faults.end()) {
    report(step, {EventKind::kFault, step::describe(*fault)});
  }
}

memory::PhaseMemory RunReports::note_memory(
    const memory::MemoryComparison& comparison) {
  if (comparison.is_more() && exceeded_.insert(comparison.phase).second) {
    report(committed(), memory::memory_prediction_event(comparison));
  }
  if (!has_peers_) return {};
  const memory::PhaseMemory all = memory::gather_memory(in_.world, comparison);
  in_.recorder.record_memory(all);
  return all;
}

void RunReports::note_device() {
  if (in_.device.device().is_cpu()) return;
  in_.device.count_connections();
  const std::vector<DeviceMemoryLine> ranks =
      gather_device_memory(in_.world, in_.device.line());
  in_.recorder.record_device_memory(ranks);
  if (in_.rank != 0) return;
  const memory::StepEvent event = device_memory_event(ranks);
  in_.client.report_event({.event = event.kind,
                           .step = committed(),
                           .rank = fullest_rank(ranks),
                           .reason = event.reason,
                           .detail_json = event.detail_json,
                           .warning = any_lacks_room(ranks)});
}

void RunReports::note_first_step() {
  if (in_.device.count_first_step()) note_device();
}

}  // namespace headroom::run
