#include "worker/run/standalone.h"

#include <chrono>
#include <cstdio>
#include <mutex>
#include <utility>

#include "configs/data_config.h"
#include "configs/flags.h"
#include "configs/layers/model_table.h"
#include "configs/recipe.h"
#include "configs/replaced_files.h"
#include "configs/run_config.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/log.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/devices/compute_device.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/saved_plan.h"
#include "parallel/predict/label_bound.h"
#include "parallel/predict/memory_request.h"
#include "proto/event_file.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/labels/measured_range.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kTag = "standalone";
constexpr auto kProgressInterval = std::chrono::seconds(2);

Error refusal(const std::string& what, const std::string& remedy) {
  return Error(kTag, what, remedy);
}

fs::path rooted(const fs::path& path) {
  return fs::absolute(path).lexically_normal();
}

void resume(const fs::path& run_yaml, configs::RunConfig& config) {
  const fs::path folder = rooted(run_yaml).parent_path();
  if (!fs::is_directory(folder / run_files::kCheckpoints)) {
    throw refusal(
        folder.string() + " has no checkpoints to go on from",
        "name the run.yaml of a run directory, or leave --resume out");
  }
  config.resume = folder.string();
  config.inject.clear();  // a resumed run does not repeat injected faults
}

// REQUIRES: a new run.
void check_run_directory(const configs::StandaloneRequest& request,
                         const configs::RunConfig& config) {
  if (request.run_directory.empty()) {
    throw refusal("nobody said where the results go",
                  "give --run-directory DIR, or --resume to go on with the run "
                  "that run.yaml lies in");
  }
  if (fs::exists(request.run_directory) && !config.exist_ok) {
    throw refusal(
        request.run_directory.string() + " is there already",
        "name another --run-directory, or write exist_ok: true into " +
            request.run_yaml.string());
  }
  configs::require_inputs_kept(config, "", request.run_directory);
}

plan::Plan read_plan(const fs::path& file, const configs::RunConfig& config) {
  if (!fs::exists(file)) {
    throw refusal("there is no plan " + file.string(),
                  "leave --plan out: then the worker plans for itself");
  }
  plan::Plan plan =
      plan::plan_from_json(yaml::read_config_file(file, kTag), file.string());
  const size_t num_layers =
      config.cfg.empty() ? 0
                         : layers::load_model_table(config.cfg).layers.size();
  const std::string why =
      planner::plan_match_error(config, plan, /*world_size=*/1, num_layers);
  if (!why.empty()) {
    throw refusal(file.string() + " is no plan for this run: " + why,
                  "remove it: then the worker plans for itself; several "
                  "processes need headroom train");
  }
  return plan;
}

// Counts the boxes per image, on which a plan's bytes depend. A launcher would
// start a worker to count them; this process is the worker.
void count_labels(configs::RunConfig& config) {
  labels::IndexOptions options;
  options.single_cls = config.single_cls;
  options.num_threads = config.threads;
  if (!config.noindex) options.kept_in = labels::index_folder();
  const labels::BoxCounts counts = labels::count_boxes(
      configs::load_data_config(config.data), labels::Split::kTrain, options);
  predict::LabelStatistics statistics = predict::label_statistics(counts.boxes);
  statistics.outlines = counts.polygons;
  config.label_counts = predict::to_text(statistics);
}

void settle_optimizer(configs::RunConfig& config) {
  if (config.optimizer != configs::OptimizerKind::kAuto) return;
  if (config.label_counts.empty() && !config.synthetic_input) {
    count_labels(config);
  }
  const int64_t images =
      config.synthetic_input
          ? configs::kSyntheticStepsPerEpoch * config.global_batch_size
          : predict::label_bound(config).statistics.num_images();
  log::info(configs::settle_optimizer(config, images,
                                      configs::num_classes_of(config)));
}

// A process without a coordinator uses the card that run.yaml names, or the
// CPU.
void settle_device(configs::RunConfig& config) {
  if (!is_automatic_device(config.device)) return;
  config.device = kCpuDevice;
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  const int count = plugin.api == nullptr ? 0 : plugin.api->device_count();
  if (count == 0) return;
  log::warn("this run is on the CPU, and " + counted(count, "card") +
            (count == 1 ? " is" : " are") +
            " idle: device: 0 in run.yaml uses the first");
}

// Stores data.yaml's value range in the run's configuration.
void settle_value_range(configs::RunConfig& config) {
  if (config.command != "train" || config.synthetic_input ||
      !config.value_range.empty()) {
    return;
  }
  const auto wish = configs::read_range_wish(config.data);
  if (!wish) return;
  if (!wish->is_measured()) {
    config.value_range = to_text(wish->ranges);
    return;
  }
  labels::IndexOptions options;
  options.num_threads = config.threads;
  options.limits.bands = codecs::kAnyBands;
  options.limits.as_stored = true;
  const labels::IndexedDataset indexed = labels::index_dataset(
      configs::load_data_config(config.data), labels::Split::kTrain, options);
  config.value_range = to_text(
      labels::measured_range(indexed.dataset, *wish, options.num_threads));
  log::info("range: " + config.value_range + ", measured as data.yaml asks");
}

// The speed of the card that the run is on, for its plan; unknown on the CPU.
planner::CardSpeed card_of(const configs::RunConfig& config) {
  if (!computes_on_cards(config.device)) return {};
  const std::vector<int> named = parse_device_list(config.device);
  const int index = named.empty() ? 0 : named.front();
  const devices::DevicePlugin plugin =
      devices::load_device_plugin(devices::device_plugin_path());
  // A card that is missing is refused when the run begins.
  if (plugin.api == nullptr || index >= plugin.api->device_count()) return {};
  return planner::speed_of_card(plugin.api->describe(index).name);
}

// Makes the plan that `headroom plan` would make for one process.
plan::Plan make_plan(configs::RunConfig& config) {
  if (config.processes > 1) {
    throw refusal(
        cat("run.yaml is for ", config.processes, " processes, not for 1"),
        "write processes: 1 into it; several processes need headroom "
        "train");
  }
  if (config.label_counts.empty() && config.memory_limit > 0 &&
      !config.synthetic_input) {
    count_labels(config);
  }
  const std::vector<layers::LayerCost> layers =
      planner::layers_for_plan(config);
  planner::CardSpeed speed = card_of(config);
  try {
    speed = planner::measured_speed(speed, config, layers);
  } catch (const Error& error) {
    // A file that is wrong does not stop a training.
    log::warn(std::string(error.what()) + "; the card's speed is assumed");
  }
  return planner::plan_or_throw(config, /*world_size=*/1, {layers, speed});
}

plan::Plan plan_of(const configs::StandaloneRequest& request,
                   configs::RunConfig& config) {
  const fs::path beside = request.run_yaml.parent_path() / run_files::kPlan;
  const bool is_given = !request.plan_json.empty() || fs::exists(beside);
  plan::Plan plan =
      is_given
          ? read_plan(request.plan_json.empty() ? beside : request.plan_json,
                      config)
          : make_plan(config);
  if (plan.backend == plan::Backend::kMpi) {
    throw refusal(
        "a process on its own is no MPI job",
        "write backend: gloo into " +
            (is_given ? run_files::kPlan : request.run_yaml.string()));
  }
  return plan;
}

class Control final : public StandaloneControl {
 public:
  Control(const control::Assignment& assignment,
          std::function<bool()> stop_requested)
      : assignment_(assignment),
        stop_requested_(std::move(stop_requested)),
        file_(assignment.run_directory) {
    write({.event = EventKind::kGeneration,
           .step = assignment.resume_steps,
           .reason = assignment.reason,
           .detail_json = R"({"generation":1,"world_size":1})"});
  }

  control::Assignment next_assignment() override {
    control::Assignment next;  // the default action ends the process
    if (!std::exchange(handed_out_, true)) next = assignment_;
    return next;
  }

  std::unique_ptr<KeyValueStore> rendezvous(uint64_t) override {
    return nullptr;  // there are no peers to connect to
  }

  void set_progress(const wire::RunProgress& progress) override {
    std::lock_guard lock(mutex_);
    if (progress.phase != wire::WorkerPhase::kTrain &&
        progress.phase != phase_) {
      log::info(std::string("phase: ") + to_string(progress.phase));
    }
    phase_ = progress.phase;
  }

  bool stop_requested() const override { return stop_requested_(); }
  bool leave_requested(uint64_t) const override { return false; }

  void commit(int64_t step, double loss,
              const wire::RunProgress& progress) override {
    std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    const bool is_due = step == 1 || step == progress.num_steps ||
                        now - shown_ >= kProgressInterval;
    if (!is_due) return;
    shown_ = now;
    log::info(cat(
        "step ", step, "/", progress.num_steps, "  epoch ", progress.epoch + 1,
        "/", progress.num_epochs, "  loss ", significant_text(loss, 5), "  ",
        significant_text(progress.images_per_second, 4), " images/s  peak ",
        format_bytes(progress.measured_peak_bytes)));
  }

  void report_event(const control::RunEvent& event) override {
    log::write(event.warning ? log::Level::kWarn : log::Level::kInfo,
               to_string(event.event) + ": " + event.reason);
    write(event);
  }

  void report_failure(const control::WorkerFailure& failure) override {
    close({.exit_code = failure.exit_code,
           .reason = failure.message,
           .step = failure.committed_steps});
  }

  // Ends the run: no coordinator chooses another plan.
  void leave_generation(const control::LeftGeneration& left) override {
    if (!left.float16_error.empty()) {
      return close({.exit_code = static_cast<int>(ExitCode::kResource),
                    .reason = "the check of fp16 failed on " +
                              left.float16_error +
                              ": set precision: fp32 in run.yaml"});
    }
    close({.exit_code = static_cast<int>(ExitCode::kResource),
           .reason =
               cat("out of memory with the leanest activations after step ",
                   left.committed_steps,
                   "; a worker on its own has one plan: go on with headroom "
                   "train --resume ",
                   assignment_.run_directory, " --processes N"),
           .result_json = left.result_json,
           .step = left.committed_steps});
  }

  void finish(const control::FinishedRun& finished) override {
    close(finished);
  }

  StandaloneEnd end() const override { return end_; }

 private:
  void write(control::RunEvent record) {
    record.time = utc_now();
    std::lock_guard lock(mutex_);
    file_.add({wire::to_json_line(record)});
    file_.write();
  }

  void close(const control::FinishedRun& finished) {
    const int exit_code = finished.exit_code;
    end_ = {exit_code, finished.reason, finished.result_json};
    const bool as_it_should =
        exit_code == 0 || exit_code == static_cast<int>(ExitCode::kInterrupted);
    write({.event = EventKind::kRunOver,
           .step = finished.step,
           .reason = finished.reason,
           .detail_json = cat(R"({"exit_code":)", exit_code, R"(,"state":")",
                              as_it_should ? "finished" : "failed", R"("})"),
           .warning = !as_it_should});
  }

  const control::Assignment assignment_;
  const std::function<bool()> stop_requested_;
  bool handed_out_ = false;  // used by the main thread only, like end_
  StandaloneEnd end_;
  std::mutex mutex_;  // guards the members below: loader threads report, too
  wire::EventFile file_;
  wire::WorkerPhase phase_ = wire::WorkerPhase::kUnknown;
  Clock::time_point shown_{};
};

}  // namespace

StandaloneRun read_standalone(const configs::StandaloneRequest& request) {
  configs::RunConfig config =
      configs::parse_run_config(yaml::read_config_file(request.run_yaml, kTag),
                                request.run_yaml.string());
  if (request.resume) {
    resume(request.run_yaml, config);
  } else {
    check_run_directory(request, config);
  }
  configs::take_augment_program(config, request.augment_program);
  configs::check_run_config(config);
  configs::check_run_sources(config);
  if (config.global_batch_size == configs::kLargestBatch) {
    throw refusal("the largest batch that fits is headroom plan's to find",
                  "write run.yaml with headroom plan ... --batch -1 --write "
                  "DIR, or give a number");
  }
  if (config.threads == 0) {
    config.threads = read_machine_limits().cores;
  }
  if (!request.resume) settle_value_range(config);
  configs::begin_hours(config, std::chrono::system_clock::now());
  settle_device(config);
  if (config.command == "train") settle_optimizer(config);
  StandaloneRun run;
  run.threads = static_cast<int>(config.threads);
  control::Assignment& assignment = run.assignment;
  assignment.action = control::Action::kRun;
  assignment.generation = 1;
  assignment.reason = "one worker, no coordinator";
  // A validation has no plan.
  if (config.command == "train") assignment.plan = plan_of(request, config);
  assignment.run_config_yaml = configs::to_yaml(config);
  assignment.run_directory =
      request.resume ? config.resume : rooted(request.run_directory).string();
  return run;
}

std::unique_ptr<StandaloneControl> StandaloneControl::make(
    const control::Assignment& assignment,
    std::function<bool()> stop_requested) {
  return std::make_unique<Control>(assignment, std::move(stop_requested));
}

}  // namespace headroom::run
