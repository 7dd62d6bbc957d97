#include "worker/run/run_recorder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>

#include "configs/layers/detect_branches.h"
#include "configs/layers/model_record.h"
#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_json.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/packs/packed_file.h"
#include "worker/run/starting_state.h"

namespace headroom::run {
namespace {

// How many faults of the data are printed when a run starts; data_report.txt
// has all faults.
constexpr int64_t kFaultsShown = 5;

double steady_seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Bytes of the leading lines with steps below `first_step`. The incomplete last
// line of a killed run does not count.
uint64_t bytes_to_keep(const std::filesystem::path& path, int64_t first_step) {
  const RegularFile file(path, Links::kRefused);
  uint64_t keep = 0;
  if (!file.is_open() && errno == ENOENT) return keep;
  const auto take = [&](std::string_view line, bool is_whole) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!is_whole || !record.is_object() ||
        !record.value("step", nlohmann::json()).is_number_integer() ||
        record["step"].get<int64_t>() >= first_step) {
      return false;
    }
    keep += line.size() + 1;
    return true;
  };
  // Lines that cannot be read must not be cut off, so refuse the file.
  if (!file.is_open() || !for_each_line(file, take)) {
    throw Error("run",
                "cannot read " + path.string() + " (" + file_fault() + ")",
                "check its disk and its permissions, or move it away",
                ExitCode::kResource);
  }
  return keep;
}

}  // namespace

StepLog::StepLog(const std::filesystem::path& file, int64_t first_step,
                 const std::string& newest_line)
    : file_(file) {
  // If `newest_line` is given, it replaces the line of step `first_step` - 1.
  const int64_t first_cut = newest_line.empty() ? first_step : first_step - 1;
  if (!file_.cut_to(bytes_to_keep(file, first_cut))) {
    throw Error("run",
                "cannot write " + file.string() + " (" + file_fault() + ")",
                "choose a writable folder with --project DIR");
  }
  if (newest_line.empty()) return;
  file_.add(newest_line);
  all_are_written_ = file_.write();
}

bool StepLog::has_lines_from(const std::filesystem::path& file,
                             int64_t first_step) {
  const RegularFile lines(file, Links::kFollowed);
  bool has_found = false;
  if (!lines.is_open()) return false;
  for_each_line(lines, [&](std::string_view line, bool is_whole) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    has_found = is_whole && record.is_object() &&
                record.value("step", int64_t{0}) >= first_step;
    return !has_found;
  });
  return has_found;
}

std::string to_json_line(const StepRecord& record) {
  const step::StepResult& result = record.result;
  nlohmann::ordered_json memory = nlohmann::ordered_json::array();
  const auto ranks = std::ssize(result.measured_peak_bytes);
  const bool has_all = ranks <= kMostListedRanks;
  const int64_t first = has_all ? 0 : record.step * kMostListedRanks;
  for (int64_t i = 0; i < std::min<int64_t>(ranks, kMostListedRanks); ++i) {
    const auto rank = static_cast<size_t>((first + i) % ranks);
    const bool is_predicted = result.predicted_peak_bytes[rank] > 0;
    memory.push_back({{"rank", rank},
                      {"predicted_peak_bytes",
                       is_predicted ? nlohmann::ordered_json(
                                          result.predicted_peak_bytes[rank])
                                    : nlohmann::ordered_json()},
                      {"measured_peak_bytes", result.measured_peak_bytes[rank]},
                      {"live_bytes", result.live_bytes[rank]}});
  }
  nlohmann::ordered_json samples;
  if (record.lists_samples) {
    samples = sampling::samples_at(record.order, record.positions);
  } else {
    samples = {{"seed", record.seed},
               {"epoch", record.epoch},
               {"begin", record.positions.begin},
               {"end", record.positions.end}};
    if (!record.order_name.empty()) samples["order"] = record.order_name;
  }
  // Doubles get as many digits as are needed to read the same bits again.
  nlohmann::ordered_json line = {{"step", record.step},
                                 {"epoch", record.epoch},
                                 {"generation", record.generation},
                                 {"attempt", record.attempt},
                                 {"optimizer_step", result.optimizer_stepped},
                                 {"loss", result.loss}};
  for (const auto& [name, value] :
       named_losses(record.has_anchors, result.terms)) {
    line[name] = value;
  }
  line.update(
      nlohmann::ordered_json{{"grad_norm", result.gradient_norm},
                             {"lr", result.settings.lr},
                             {"samples", std::move(samples)},
                             {"epoch_samples", record.epoch_samples},
                             {"images_per_second", record.images_per_second},
                             {"seconds", record.seconds},
                             {"memory", memory}});
  if (!has_all) line["ranks"] = ranks;
  if (record.image_height > 0) {
    line["image_size"] = {record.image_height, record.image_width};
  }
  if (result.loss_scale) line["loss_scale"] = *result.loss_scale;
  if (result.lowered_scale) line["update_skipped"] = true;
  return line.dump();
}

void StepLog::write(StepRecord record) {
  settle();
  kept_.push_back(std::move(record));
  try {
    writing_ = std::async(std::launch::async, [this] { return write_kept(); });
  } catch (const std::exception&) {  // there is no thread or memory for it
    all_are_written_ = write_kept();
  }
}

bool StepLog::write_kept() {
  try {
    for (; !kept_.empty(); kept_.pop_front()) {
      file_.add(to_json_line(kept_.front()));
    }
    return file_.write();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return false;
  }
}

bool StepLog::settle() {
  if (writing_.valid()) all_are_written_ = writing_.get();
  return all_are_written_;
}

namespace {

// Rates that an earlier generation measured; nullopt if plan.json has none.
std::optional<plan::NetworkRates> recorded_network(
    const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / run_files::kPlan;
  const std::string text = text_or_none(file);
  if (text.empty()) return std::nullopt;
  try {
    return plan::network_from_json(text, file.string());
  } catch (const Error&) {
    return std::nullopt;  // the file will be written again
  }
}

}  // namespace

std::map<std::string, std::string> run_definition(
    const RunContext& run, const std::optional<plan::NetworkRates>& network) {
  return {{run_files::kRun, configs::to_yaml(run.config)},
          {run_files::kModel, layers::model_table_text(run.data.table)},
          {run_files::kPlan, plan::plan_to_json(run.assignment.plan, network)}};
}

RunRecorder::RunRecorder(const RunContext& run, step::TrainingState& state)
    : run_(run),
      state_(state),
      directory_(run.assignment.run_directory),
      mesh_(state.mesh()),
      records_(run.rank == 0),
      retry_(
          "checkpoint",
          [this](const memory::StepEvent& event) {
            run_.client.report_event({.event = event.kind,
                                      .step = state_.counters.committed_steps,
                                      .rank = run_.rank,
                                      .reason = event.reason,
                                      .detail_json = event.detail_json,
                                      .warning = true});
          }),
      started_(steady_seconds()) {}

void RunRecorder::open(const std::string& newest_line) {
  if (!records_) return;
  try {
    open_files(newest_line);
  } catch (const Error& error) {
    // kResource means that the run can be resumed. Before the first step it
    // cannot, so use kRequest.
    const bool is_begun = run_.assignment.generation > 1;
    ExitCode exit_code = error.exit_code();
    if (exit_code == ExitCode::kResource && !is_begun) {
      exit_code = ExitCode::kRequest;
    } else if (exit_code == ExitCode::kRequest && is_begun) {
      exit_code = ExitCode::kResource;
    }
    throw Error(error.tag(), error.text(), error.remedy(), exit_code);
  }
}

void RunRecorder::open_files(const std::string& newest_line) {
  const configs::RunConfig& config = run_.config;
  const bool resumed = run_.continues();
  // A resumed run replaces its checkpoints, so it needs space for only one
  // more. A later generation continues even if the disk is full.
  const int64_t checkpoints = run_.assignment.generation > 1 ? 0
                              : resumed                      ? 1
                                        : config.keep_checkpoints + 1;
  const int64_t needed =
      checkpoints * checkpoint::checkpoint_bytes(run_.layers, config.optimizer,
                                                 state_.scalar_type());
  // A lost rank 0 may hold the folder's lock until its process has ended.
  constexpr std::chrono::seconds kTimeToDie(20);
  set_aside_other_run(run_.assignment.folder);
  directory_.create(
      config.exist_ok || resumed, needed,
      run_.assignment.generation > 1 ? kTimeToDie : std::chrono::seconds(0));
  // A resumed run keeps an older run that is still in the folder.
  if (!config.resume.empty()) directory_.keep_older_run();
  if (!resumed) directory_.mark_older_run();
  // Only the first generation reports the data.
  if (run_.assignment.generation == 1) report_data();
  if (run_.assignment.generation == 1 && !resumed &&
      !config.anchors_reason.empty()) {
    run_.client.report_event({.event = EventKind::kAutoanchor,
                              .step = 0,
                              .rank = -1,
                              .reason = config.anchors_reason});
  }
  const int64_t first_step = state_.counters.committed_steps;
  if (first_step > 0 || !directory_.holds_older_run()) {
    begin_files(first_step, newest_line);
  }
}

void RunRecorder::set_aside_other_run(const FolderPlace& place) const {
  if (!place.is_known()) return;
  const std::filesystem::path moved =
      directory_.set_aside_other_run(place.run_id);
  if (moved.empty()) return;
  run_.report(EventKind::kRunDirectory, state_.counters.committed_steps,
              cat(directory_.root().string(), " on ", this_host_name(),
                  " is of another run: it is called ", moved.string(), " now"),
              /*warning=*/true);
}

void RunRecorder::write_mark() const {
  const control::Assignment& assignment = run_.assignment;
  if (assignment.node_id.empty()) return;  // there is no coordinator
  write_folder_mark(directory_.root(), assignment.folder.run_id,
                    assignment.node_id);
}

void RunRecorder::write_definition(bool writes_model) const {
  write_mark();
  std::optional<plan::NetworkRates> network = run_.network;
  // The file may be from an older run in the folder until a step is committed.
  if (!network && state_.counters.committed_steps > 0) {
    network = recorded_network(directory_.root());
  }
  for (const auto& [name, text] : run_definition(run_, network)) {
    // Write the model only once: its source file may have changed since.
    if (name != run_files::kModel || writes_model) {
      directory_.write_text(name, text);
    }
  }
}

void RunRecorder::await_folder() const {
  if (!records_) return;
  // Shorter than the 30 s that Kubernetes gives a process to end.
  constexpr auto kPatience = std::chrono::seconds(20);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const LongWork working;
  const auto is_away = [&] {
    const RegularFile run(directory_.root() / run_files::kRun,
                          Links::kFollowed);
    if (run.is_open() && run.read(0, 1)) return false;
    return packs::may_pass(errno);
  };
  for (bool is_said = false;
       is_away() && std::chrono::steady_clock::now() < end; is_said = true) {
    if (!is_said) {
      run_.report(EventKind::kDisk, state_.counters.committed_steps,
                  cat(directory_.root().string(), " cannot be read (",
                      std::strerror(errno), "): waiting up to ",
                      kPatience.count(), " s for it"),
                  /*warning=*/true);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

void RunRecorder::make_folder_again() const {
  // An error means that the file system does not respond now, not that the
  // folder is missing.
  std::error_code error;
  const bool is_there =
      std::filesystem::exists(directory_.root() / run_files::kRun, error);
  if (!step_log_ || is_there || error) return;
  try {
    directory_.make_sub_folders();
    write_definition(true);
  } catch (const Error& error) {  // a file has a sub-folder's name
    run_.report(EventKind::kRunDirectory, state_.counters.committed_steps,
                std::string(error.what()) + "; training goes on",
                /*warning=*/true);
    return;
  }
  run_.report(
      EventKind::kRunDirectory, state_.counters.committed_steps,
      directory_.root().string() +
          " was removed meanwhile and is made again, without what it had",
      /*warning=*/true);
}

// After a loss, rank 0 may be on a machine that does not share the folder.
// `place`: where the folder was written before.
void RunRecorder::say_where_it_goes_on(const FolderPlace& place,
                                       int64_t first_line) const {
  const std::string folder = directory_.root().string();
  if (!is_elsewhere(folder, place)) return;
  run_.report(
      EventKind::kRunDirectory, state_.counters.committed_steps,
      cat("rank 0 is on ", this_host_name(),
          " now, which does not "
          "share the run's folder with ",
          place.hostname, ": from step ", first_line + 1, " on (generation ",
          run_.assignment.generation, ") the files are written to ", folder,
          " on ", this_host_name(),
          "; the lines, checkpoints and weights of the steps before "
          "stay on ",
          place.hostname),
      /*warning=*/true);
}

void RunRecorder::begin_files(int64_t first_step,
                              const std::string& newest_line) {
  // `newest_line` is that of the step before.
  say_where_it_goes_on(run_.assignment.folder,
                       newest_line.empty() ? first_step : first_step - 1);
  const bool replaces = directory_.holds_older_run();
  const bool goes_on = !replaces && run_.continues();
  if (replaces) directory_.remove_older_run();
  // In a later generation a full disk is no error here: the files exist.
  const bool may_wait = run_.assignment.generation > 1 && !replaces;
  write_or_say(run_files::kRun, /*is_end=*/!may_wait, [&] {
    write_definition(!goes_on || !layers::recorded_model(directory_.root()));
    if (data_report_) {
      directory_.write_text(run_files::kDataReport, *data_report_);
    }
    directory_.record_files();
  });
  directory_.keep_older_run();
  if (goes_on) summary_ = read_summary(directory_.root() / run_files::kSummary);
  seconds_before_ = summary_.wall_seconds;
  step_log_ = std::make_unique<StepLog>(directory_.root() / run_files::kSteps,
                                        first_step, newest_line);
  write_or_say(run_files::kResults, /*is_end=*/!may_wait, [&] {
    results_ = std::make_unique<Results>(directory_.root(),
                                         state_.counters.recorded_epochs,
                                         layers::has_anchors(run_.data.table));
  });
}

// Prints the first faults of the data set; data_report.txt has all faults.
void RunRecorder::report_data() {
  std::string text;
  for (const labels::DataReport& report : run_.data.reports) {
    for (const std::string& line : report.lines(labels::kMaxDataFaults)) {
      text += line + "\n";
    }
    for (const std::string& line : report.lines(kFaultsShown)) {
      run_.client.report_event({.event = EventKind::kData,
                                .step = state_.counters.committed_steps,
                                .rank = -1,
                                .reason = line,
                                .warning = report.num_faults() > 0});
    }
  }
  for (const std::string& note :
       {step::note_on_fraction(run_.config, run_.data),
        step::note_on_class_weights(run_.config, run_.data),
        step::note_on_copy_paste(run_.config, run_.data),
        step::note_on_colours(run_.config, run_.data),
        step::note_on_range(run_.config, run_.data),
        step::note_on_image_weights(run_.config, run_.data)}) {
    if (note.empty()) continue;
    text += note + "\n";
    run_.client.report_event({.event = EventKind::kData,
                              .step = state_.counters.committed_steps,
                              .rank = -1,
                              .reason = note});
  }
  data_report_ = text;
}

void RunRecorder::record_step(const StepRecord& record) {
  if (!records_) return;
  if (!step_log_) begin_files(record.step, "");
  const step::StepResult& result = record.result;
  if (!result.verdict.ok()) {
    run_.client.report_event(
        {.event = EventKind::kNonFinite,
         .step = record.step,
         .rank = result.verdict.rank,
         .reason = cat("step ", record.step,
                       " is not finite: its update is skipped "
                       "(skip_non_finite)"),
         .warning = true});
  }
  summary_.retries += record.attempt - 1;
  summary_.peak_bytes.resize(result.measured_peak_bytes.size());
  for (size_t rank = 0; rank < summary_.peak_bytes.size(); ++rank) {
    summary_.peak_bytes[rank] =
        std::max(summary_.peak_bytes[rank], result.measured_peak_bytes[rank]);
  }
  step_log_->write(record);
}

void RunRecorder::settle_lines() {
  if (!step_log_) return;
  const bool is_written = step_log_->settle();
  if (!is_written && !lines_wait_) {
    run_.report(EventKind::kDisk, state_.counters.committed_steps,
                step_log_->path().string() +
                    " cannot be written (disk or host memory full?): its "
                    "lines wait in memory, training goes on; free some space",
                /*warning=*/true);
  }
  lines_wait_ = !is_written;
}

// A failure is an error only at the run's end (`is_end`); before that it is
// reported and training goes on. In both cases the peers' collective work is
// complete.
void RunRecorder::write_or_say(const std::string& name, bool is_end,
                               const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    if (is_end || error.exit_code() != ExitCode::kResource) throw;
    run_.report(
        EventKind::kDisk, state_.counters.committed_steps,
        name + " is not written: " + error.what() + "; training goes on",
        /*warning=*/true);
  }
}

void RunRecorder::record_epoch(const EpochRecord& record, bool is_best,
                               bool is_end) {
  if (is_end) await_folder();
  settle_lines();
  if (records_) {
    write_or_say(run_files::kRun, is_end, [&] { make_folder_again(); });
  }
  has_skipped_epoch_ = record.is_skipped;
  std::vector<std::string> names;
  if (!record.is_skipped) names.push_back(run_files::kLastWeights);
  if (is_best) names.push_back(run_files::kBestWeights);
  const int64_t period = run_.config.save_period;
  const bool is_whole = record.step % run_.steps_in_epoch == 0;
  if (period > 0 && is_whole && (record.epoch + 1) % period == 0) {
    names.push_back(cat(run_files::kEpochPrefix, record.epoch + 1,
                        run_files::kWeightsSuffix));
  }
  for (const std::string& name : names) {
    write_or_say(name, is_end, [&] { save_average(name, record.epoch); });
  }
  if (!records_) return;
  // Write the results after all collective work. If writing fails, the next
  // generation records the epoch again.
  write_or_say(run_files::kResults, is_end, [&] {
    if (!results_) {
      results_ =
          std::make_unique<Results>(directory_.root(), record.epoch,
                                    layers::has_anchors(run_.data.table));
    }
    results_->write(record);
  });
  run_.client.report_event(
      {.event = EventKind::kEpoch,
       .step = record.step,
       .rank = 0,
       .reason = describe_training(record, run_.config.epochs),
       .detail_json = training_event_json(record, run_.config.epochs)});
  if (record.validation) {
    if (is_best) summary_.best_metrics_json = to_json(*record.validation);
    run_.client.report_event({.event = EventKind::kValidation,
                              .step = record.step,
                              .rank = 0,
                              .reason = describe(record, run_.config.epochs),
                              .detail_json = to_event_json(record)});
  }
  write_or_say(run_files::kSummary, is_end, [&] { write_summary(""); });
}

void RunRecorder::record_pictures() {
  if (!results_) return;
  write_or_say(run_files::kTensorboardPrefix, /*is_end=*/false,
               [&] { results_->show_pictures(); });
}

void RunRecorder::save_average(const std::string& name, int64_t epoch) const {
  checkpoint::save_average_weights(
      directory_.weights() / name, state_, mesh_,
      step::weights_metadata(run_.config, run_.data, epoch), retry_);
}

void RunRecorder::save_unfinished_epoch() const {
  const int64_t epoch =
      std::max<int64_t>(0, state_.counters.recorded_epochs - 1);
  write_or_say(run_files::kLastWeights, /*is_end=*/false,
               [&] { save_average(run_files::kLastWeights, epoch); });
}

std::filesystem::path RunRecorder::save_checkpoint() {
  // Rank 0's part comes first; the rest is collective.
  settle_lines();
  checkpoint::FirstFailure folder_work;
  if (records_) folder_work.run([&] { make_folder_again(); });
  const std::filesystem::path folder = headroom::checkpoint::save_checkpoint(
      directory_.checkpoints(), state_, mesh_,
      plan::plan_to_json(run_.assignment.plan), run_.config.keep_checkpoints,
      retry_);
  folder_work.rethrow();
  if (!records_) return folder;
  checkpoint::CheckpointOutcome outcome{state_.counters.committed_steps, folder,
                                        0, ""};
  std::error_code error;
  for (const std::filesystem::path& file : entries_of(folder, error)) {
    const uintmax_t bytes = std::filesystem::file_size(file, error);
    if (!error) outcome.bytes += static_cast<int64_t>(bytes);
  }
  record_checkpoint(outcome);
  return folder;
}

void RunRecorder::record_checkpoint(
    const checkpoint::CheckpointOutcome& outcome) {
  CheckpointCounts& counts = summary_.checkpoints;
  if (outcome.failure.empty()) {
    ++counts.written;
    counts.bytes += outcome.bytes;
    run_.client.report_event(
        {.event = EventKind::kCheckpoint,
         .step = outcome.step,
         .rank = 0,
         .reason = "saved " + outcome.folder.string(),
         .detail_json = cat(R"({"bytes":)", outcome.bytes, R"(,"skipped":)",
                            counts.skipped, "}")});
    return;
  }
  ++counts.failed;
  const int64_t newest =
      checkpoint::newest_checkpoint(directory_.checkpoints());
  run_.report(
      EventKind::kCheckpoint, outcome.step,
      cat("the checkpoint after ", counted(outcome.step, "step"),
          " is not written: ", outcome.failure, "; training goes on, ",
          newest > 0 ? "the newest is that after " + counted(newest, "step")
                     : "there is none yet"),
      /*warning=*/true);
}

// Reports checkpoints that were written while training went on.
void RunRecorder::report_checkpoints() const {
  const CheckpointCounts& counts = summary_.checkpoints;
  if (run_.config.checkpoint_every_steps == 0 &&
      counts.skipped + counts.failed == 0) {
    return;
  }
  run_.client.report_event(
      {.event = EventKind::kCheckpoints,
       .step = state_.counters.committed_steps,
       .rank = 0,
       .reason = cat(counts.written, " written (", format_bytes(counts.bytes),
                     "), ", counts.skipped,
                     " skipped while the one before was being written, ",
                     counts.failed, " failed")});
}

void RunRecorder::record_memory(const memory::PhaseMemory& memory) {
  if (!records_) return;
  const auto known = std::ranges::find(summary_.memory, memory.phase,
                                       &memory::PhaseMemory::phase);
  if (known == summary_.memory.end()) {
    summary_.memory.push_back(memory);
    return;
  }
  for (size_t rank = 0; rank < memory.ranks.size(); ++rank) {
    memory::PhaseMemory::Rank& most = known->ranks.at(rank);
    const memory::PhaseMemory::Rank& newest = memory.ranks[rank];
    most.predicted_peak_bytes =
        std::max(most.predicted_peak_bytes, newest.predicted_peak_bytes);
    most.measured_peak_bytes =
        std::max(most.measured_peak_bytes, newest.measured_peak_bytes);
  }
}

void RunRecorder::record_device_memory(
    const std::vector<DeviceMemoryLine>& ranks) {
  if (records_) summary_.device_memory = ranks;
}

std::string RunRecorder::record_end(ExitCode exit_code,
                                    const std::string& reason) {
  if (!records_) return "";
  await_folder();
  if (step_log_ && !step_log_->write_waiting()) {
    throw Error("run", "cannot write " + step_log_->path().string(),
                "free some space, then continue with --resume",
                ExitCode::kResource);
  }
  if (results_) results_->write_waiting();
  report_checkpoints();
  summary_.exit_code = static_cast<int>(exit_code);
  if (!directory_.holds_older_run()) write_summary(reason);
  return to_json(summary_);
}

void RunRecorder::write_summary(const std::string& ended) {
  const step::TrainingCounters& counters = state_.counters;
  summary_.best_epoch = counters.best_epoch;
  summary_.steps = counters.committed_steps;
  summary_.epochs = counters.committed_steps / run_.steps_in_epoch;
  summary_.images = summary_.epochs * run_.images_in_epoch +
                    counters.committed_steps % run_.steps_in_epoch *
                        run_.config.global_batch_size;
  summary_.generations = run_.assignment.generation;
  summary_.wall_seconds = seconds_before_ + steady_seconds() - started_;
  summary_.ended = ended;
  directory_.write_text(run_files::kSummary, to_json(summary_) + "\n");
}

void RunRecorder::take_over(const StepRecord& newest,
                            const FolderPlace& place) {
  mesh_ = nullptr;
  if (records_) return;
  records_ = true;
  await_folder();
  set_aside_other_run(place);
  say_where_it_goes_on(place, newest.result.committed
                                  ? newest.step
                                  : state_.counters.committed_steps);
  std::error_code error;
  directory_.make_sub_folders();
  if (std::filesystem::exists(directory_.root() / run_files::kRun, error)) {
    write_mark();
  } else {
    write_definition(true);
  }
  if (newest.result.committed && directory_.holds_older_run()) {
    begin_files(newest.step, "");
  } else {
    summary_ = read_summary(directory_.root() / run_files::kSummary);
    seconds_before_ = summary_.wall_seconds;
    if (!newest.result.committed) return;  // this rank committed no step
    step_log_ = std::make_unique<StepLog>(directory_.root() / run_files::kSteps,
                                          newest.step);
  }
  step_log_->write(newest);
}

}  // namespace headroom::run
