#include "worker/run/run_reports.h"

#include <cstddef>

#include "configs/layers/detect_branches.h"
#include "parallel/base/median.h"

namespace headroom::run {
namespace {

// Adds a value of the newest step, and drops that of the oldest.
void note(std::vector<double>& newest, double value) {
  constexpr size_t kRemembered = 21;
  newest.push_back(value);
  if (newest.size() > kRemembered) newest.erase(newest.begin());
}

bool is_warning(const memory::StepEvent& event,
                const configs::RunConfig& config) {
  return event.kind == EventKind::kOutOfMemory ||
         event.kind == EventKind::kMemoryPrediction ||
         (event.kind == EventKind::kLabelBound && config.memory_limit > 0);
}

}  // namespace

RunReports::RunReports(const RunContext& run, step::TrainingState& state,
                       RunRecorder& recorder, DeviceBudget& budget)
    : run_(run), state_(state), recorder_(recorder), budget_(budget) {
  const int64_t stride = state.model().max_stride();
  progress_.phase = wire::WorkerPhase::kStart;
  progress_.num_steps = run.num_steps;
  progress_.num_epochs = run.config.epochs;
  progress_.steps_per_epoch = run.steps_in_epoch;
  progress_.losses = named_losses(layers::has_anchors(run.data.table), {});
  progress_.image_height =
      layers::rounded_image_size(run.config.image_height, stride);
  progress_.image_width =
      layers::rounded_image_size(run.config.image_width, stride);
}

void RunReports::show_phase(wire::WorkerPhase phase) {
  progress_.phase = phase;
  progress_.images_validated = progress_.images_to_validate = 0;
  run_.client.set_progress(progress_);
}

void RunReports::show_validation(int64_t images, int64_t all) {
  progress_.images_validated = images;
  progress_.images_to_validate = all;
  run_.client.set_progress(progress_);
}

void RunReports::commit(const StepRecord& newest) {
  const step::EpochMeter& meter = state_.counters.meter;
  const int rank = run_.rank;
  if (run_.config.multi_scale) {
    progress_.image_height = newest.image_height;
    progress_.image_width = newest.image_width;
  }
  progress_.step = committed();
  progress_.epoch = newest.epoch;
  progress_.step_in_epoch = newest.step % run_.steps_in_epoch + 1;
  progress_.losses =
      named_losses(layers::has_anchors(run_.data.table), meter.means);
  note(speeds_, newest.images_per_second);
  progress_.images_per_second = median(speeds_);
  progress_.measured_peak_bytes = newest.result.measured_peak_bytes[rank];
  note(durations_, newest.seconds);
  progress_.median_step_ms = static_cast<int64_t>(median(durations_) * 1000);
  progress_.predicted_peak_bytes = newest.result.predicted_peak_bytes[rank];
  show_phase(wire::WorkerPhase::kTrain);
  if (rank != 0) return;
  run_.client.commit(committed(), newest.result.loss, progress_);
}

void RunReports::say_once(const std::vector<std::string>& faults) {
  for (const std::string& fault : faults) {
    if (!faults_said_.insert(fault).second) continue;
    run_.client.report_event({.event = EventKind::kData,
                              .step = committed(),
                              .rank = run_.rank,
                              .reason = fault,
                              .warning = true});
  }
}

void RunReports::report(int64_t step, const memory::StepEvent& event) {
  run_.client.report_event({.event = event.kind,
                            .step = step,
                            .rank = run_.rank,
                            .reason = event.reason,
                            .detail_json = event.detail_json,
                            .warning = is_warning(event, run_.config)});
}

memory::MemoryRetry RunReports::retry(const std::string& phase) {
  return {
      phase,
      [this](const memory::StepEvent& event) { report(committed(), event); },
      run_.device};
}

void RunReports::begin_phase(configs::Fault::Phase phase, int64_t step) {
  run_.faults.begin(phase, step);
}

void RunReports::end_phase(int64_t step) {
  if (const auto fault = run_.faults.end()) {
    report(step, {EventKind::kFault, step::describe(*fault)});
  }
}

memory::PhaseMemory RunReports::note_memory(
    const memory::MemoryComparison& comparison) {
  if (comparison.is_more() && exceeded_.insert(comparison.phase).second) {
    report(committed(), memory::memory_prediction_event(comparison));
  }
  if (!has_peers_) return {};
  const memory::PhaseMemory all =
      memory::gather_memory(state_.mesh()->world, comparison);
  recorder_.record_memory(all);
  return all;
}

void RunReports::note_device() {
  if (run_.device.is_cpu()) return;
  budget_.count_connections();
  const std::vector<DeviceMemoryLine> ranks =
      gather_device_memory(state_.mesh()->world, budget_.line());
  recorder_.record_device_memory(ranks);
  if (run_.rank != 0) return;
  const memory::StepEvent event = device_memory_event(ranks);
  run_.client.report_event({.event = event.kind,
                            .step = committed(),
                            .rank = fullest_rank(ranks),
                            .reason = event.reason,
                            .detail_json = event.detail_json,
                            .warning = any_lacks_room(ranks)});
}

void RunReports::note_first_step() {
  if (budget_.count_first_step()) note_device();
}

}  // namespace headroom::run
