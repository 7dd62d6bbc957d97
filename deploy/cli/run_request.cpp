#include "deploy/cli/run_request.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "configs/data_config.h"
#include "configs/fault.h"
#include "configs/layers/detect_branches.h"
#include "configs/layers/model_record.h"
#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "configs/published_weights.h"
#include "configs/recipe.h"
#include "configs/replaced_files.h"
#include "configs/yaml/strict_yaml.h"
#include "coordinator/run/device_choice.h"
#include "coordinator/run/precision_choice.h"
#include "deploy/cli/args/run_name.h"
#include "deploy/cli/machine_share.h"
#include "deploy/cli/process/node_cards.h"
#include "deploy/cli/remedy_scope.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/nvml/nvml.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/largest_batch.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/planner.h"
#include "parallel/planner/saved_plan.h"
#include "proto/version.h"

namespace headroom::cli {
namespace {

std::set<std::string> keys_given(const std::vector<configs::FlagUse>& uses) {
  std::set<std::string> keys;
  for (const configs::FlagUse& use : uses) {
    if (use.spelling == "--set") {
      for (const std::string& word : use.values) {
        keys.insert(word.substr(0, word.find('=')));
      }
    } else if (const auto* option = configs::find_flag(use.spelling)) {
      keys.insert({option->key, option->second_key});
    }
  }
  return keys;
}

std::string shown(const std::string& value) {
  return value.empty() ? "''" : value;
}

// Makes the paths absolute, because the run may be resumed from another working
// folder.
void make_paths_absolute(configs::RunConfig& config) {
  for (std::string* path : {&config.data, &config.cfg, &config.weights,
                            &config.teacher, &config.hyp_file}) {
    std::error_code ignored;
    if (!path->empty() && std::filesystem::exists(*path, ignored)) {
      *path = std::filesystem::absolute(*path).lexically_normal().string();
    }
  }
}

// Throws if the run's data set is no longer where it was when the run began.
void require_data_of_resumed_run(const configs::RunConfig& config,
                                 const std::string& run_directory) {
  std::error_code ignored;
  if (config.synthetic_input || config.data.empty() ||
      std::filesystem::exists(config.data, ignored)) {
    return;
  }
  throw Error("resume", "the run's data, " + config.data + ", is not there",
              "if it has moved, write headroom train --resume " +
                  shell_word(run_directory) + " --data NEW_PLACE");
}

// Checks the files as far as possible without starting a process. A plan needs
// no data.
void check_files(const configs::RunConfig& config) {
  if (!config.cfg.empty()) {
    const size_t layers = layers::load_model_table(config.cfg).layers.size();
    if (config.freeze >= static_cast<int64_t>(layers)) {
      throw Error("model",
                  cat("--freeze ", config.freeze, " would train nothing: ",
                      config.cfg, " has ", layers, " layers"),
                  cat("use 0 to ", layers - 1,
                      "; 10 freezes the backbone of YOLOv5 and YOLOv8"));
    }
  }
  if (!config.synthetic_input && !config.data.empty()) {
    configs::load_data_config(config.data);
  }
  if (config.weights.empty()) return;
  require_weights(config.weights,
                  config.command == "val" ? "" : ", or leave --weights out");
  planner::metadata_of_weights(config.weights);
}

// The value of the last --config; "" without one.
std::string config_file(const std::vector<configs::FlagUse>& uses) {
  std::string file;
  for (const configs::FlagUse& use : uses) {
    if (use.spelling == "--config") file = use.values.front();
  }
  return file;
}

bool names_image_size(const std::vector<configs::FlagUse>& uses) {
  const std::set<std::string> given = keys_given(uses);
  if (given.contains("image_height") || given.contains("image_width")) {
    return true;
  }
  configs::RunConfig config;
  config.image_height = config.image_width = 0;
  if (const std::string file = config_file(uses); !file.empty()) {
    configs::overlay_run_config(config, yaml::read_config_file(file, "config"),
                                file);
  }
  return config.image_height != 0 || config.image_width != 0;
}

// Validates weights at the image size that they were trained with.
void use_trained_size(const std::vector<configs::FlagUse>& uses,
                      RunRequest& request) {
  configs::RunConfig& config = request.config;
  if (config.command != "val" || config.weights.empty() ||
      names_image_size(uses)) {
    return;
  }
  const auto size =
      layers::trained_size(planner::metadata_of_weights(config.weights));
  if (!size) return;
  config.image_height = size->height;
  config.image_width = size->width;
  request.notes.push_back(layers::trained_size_note(*size, config.weights));
}

// Weights that were trained with --single-cls have one class for all classes of
// the data set, so validation needs the flag too. With a data set of one class
// the flag would change nothing.
void use_trained_classes(RunRequest& request) {
  configs::RunConfig& config = request.config;
  if (config.command != "val" || config.weights.empty() || config.single_cls) {
    return;
  }
  const auto metadata = planner::metadata_of_weights(config.weights);
  const auto said = metadata.find(layers::kSingleClass);
  if (said == metadata.end() || said->second != "true" ||
      planner::num_classes_of_run(config).value_or(1) == 1) {
    return;
  }
  config.single_cls = true;
  request.notes.push_back("--single-cls: all classes are judged as one, as " +
                          config.weights + " was trained");
}

// Refuses an injected fault for a rank that does not exist: it would test
// nothing.
void check_faults(const configs::RunConfig& config, int world_size) {
  for (const configs::Fault& fault : configs::parse_faults(config.inject)) {
    if (fault.rank < world_size) continue;
    throw Error(
        "config",
        cat("--inject ", configs::to_string(fault), ": there is no rank ",
            fault.rank, ", ranks are counted from 0"),
        cat("use rank=0 to rank=", world_size - 1));
  }
}

void check_mpi(const configs::RunConfig& config,
               const std::optional<LauncherPlace>& place, int workers) {
  if (config.backend != plan::Backend::kMpi || workers == 1) return;
  if (place) {
    throw Error("mpi",
                cat("--backend mpi needs one worker per slot of ",
                    place->launcher, ", but --processes is ", workers),
                "start more slots (-np N) with --processes 1");
  }
  throw Error("mpi",
              cat("--backend mpi with ", workers,
                  " processes, but no mpirun started this one"),
              cat("use mpirun -np ", workers,
                  " headroom ... --processes 1, or another --backend"));
}

// Whether the devices are not NVIDIA cards, so that NVML has no information.
bool has_other_devices() {
  return std::getenv(kDevicePluginVariable) != nullptr;
}

// Checks that check_run_config cannot make, because they depend on this
// machine. Only the worker finds out whether its build has the plugin.
void check_devices(const configs::RunConfig& config,
                   const std::optional<LauncherPlace>& place, int workers) {
  const std::vector<int> cards = parse_device_list(config.device);
  if (cards.empty()) return;
  const int workers_here = workers * (place ? place->local_size : 1);
  card_of_rank(cards, 0, workers_here, config.share_devices);
  if (!has_other_devices()) {
    nvml::cards_asked_for(config.device, nvml::Nvml());
  }
}

// The format that a remedy may advise in place of a wider one: none that a
// check may refuse when the run begins.
template <typename Choice>
configs::Precision advised_precision(const Choice& automatic) {
  return automatic.checks_float16 ? configs::Precision::kFp32
                                  : automatic.precision;
}

// Chooses device and precision from this machine's cards. The choice is final
// if no other node takes part; otherwise it is a guess until the other nodes
// have registered. Returns the precision that a remedy may advise.
configs::Precision settle_as_here(const NodeCards& here, bool only_plans,
                                  RunRequest& request) {
  configs::RunConfig& config = request.config;
  std::vector<coordinator::Node> nodes = {
      node_with(here, request.workers_per_agent)};
  coordinator::Node& node = nodes.front();
  const coordinator::SlotCards chosen =
      coordinator::choose_slot_cards(config, node, {});
  // Plans may be made for cards of other machines.
  if (chosen.refusal && (!only_plans || is_automatic_device(config.device))) {
    throw Error(*chosen.refusal);
  }
  node.slot_cards = chosen.cards;
  const coordinator::DeviceChoice choice =
      coordinator::choose_devices(config, nodes);
  configs::RunConfig open = config;
  open.precision = configs::Precision::kAuto;
  config.device = choice.device;
  config.precision = choice.precision;
  config.checks_float16 = choice.checks_float16;
  request.devices = choice.text;
  if (config.command == "train") {
    request.card = coordinator::card_of_run(config, nodes, {}, {});
  }
  for (const int64_t card : node.slot_cards) {
    if (card >= 0 && card < std::ssize(here.lines)) {
      request.notes.push_back(here.lines[static_cast<size_t>(card)]);
    }
  }
  if (!choice.reason.empty() && request.num_agents == 1) {
    request.notes.push_back(coordinator::precision_line(config, choice.reason));
  }
  return advised_precision(coordinator::choose_devices(open, nodes));
}

// Whether the option may not change, as the state of the committed steps
// depends on it. Precision may not change to or from fp64: files of float64
// cannot be read as float32.
bool changes_state(const configs::Option& option, const std::string& before,
                   const std::string& after) {
  return option.defines_steps || option.key == "weights" ||
         (option.key == "precision" && (before == "fp64" || after == "fp64"));
}

Error changed_in_mid_run(const configs::Option& option,
                         const std::string& before, const std::string& after,
                         const std::string& run_directory) {
  if (option.key == "weights") {
    return Error("resume",
                 "--weights " + after +
                     " would change nothing: a resumed run has the weights of "
                     "its checkpoint",
                 "leave it out, or start a new run with it, without --resume");
  }
  return Error("resume",
               configs::shown_name(option) + " was " + shown(before) +
                   " and cannot become " + shown(after) +
                   ": the committed steps were made with it",
               "leave it out, or " + layers::how_to_start_anew(run_directory));
}

// Refuses a model that differs from the recorded one: its file may have been
// edited, or another file named, since the run began.
void check_recorded_model(const configs::RunConfig& config,
                          const std::string& run_directory) {
  const std::optional<layers::ModelTable> recorded =
      layers::recorded_model(run_directory);
  if (!recorded) return;
  layers::ModelTable now = planner::table_of_run(config);
  // Compares with the recorded anchors, because the run chose them or took them
  // from the weights file.
  if (config.cfg.empty() || !config.anchors.empty()) {
    now.anchors = recorded->anchors;
  }
  layers::require_same_model(*recorded, now,
                             config.cfg.empty() ? config.weights : config.cfg,
                             run_directory);
}

// Whether the plan or the batch depends on label counts, and the run has
// labels.
bool wants_labels(const configs::RunConfig& config, bool only_plans) {
  return config.command == "train" && !config.synthetic_input &&
         !config.data.empty() &&
         (only_plans || config.memory_limit > 0 ||
          config.global_batch_size == configs::kLargestBatch);
}

bool chooses_plan(const std::vector<configs::FlagUse>& uses) {
  const std::set<std::string> given = keys_given(uses);
  return std::ranges::any_of(configs::run_options(), [&](const auto& option) {
    return option.of_plan && given.contains(option.key);
  });
}

// Puts the folder and the configuration of the run that --resume names into the
// request, whose configuration has the flags of `line` alone.
void restore_run(const CommandLine& line, RunRequest& request) {
  configs::RunConfig& config = request.config;
  request.run_directory =
      run_directory_to_resume(project_folder(config),
                              config.resume == "latest" ? "" : config.resume)
          .string();
  config = resumed_config(request.run_directory, line.run_flags, request.notes);
}

// Finds and checks the files that the run reads. A resumed run needs the data
// and the model that it had.
void take_files(const CommandLine& line, RunRequest& request) {
  configs::RunConfig& config = request.config;
  const bool is_resumed = !config.resume.empty();
  if (is_resumed) require_data_of_resumed_run(config, request.run_directory);
  config.weights = configs::find_weights(config.weights, request.notes);
  config.teacher = configs::find_weights(config.teacher, request.notes);
  // The coordinator reads none of them, and its machine may lack them.
  if (line.command != "coordinator") check_files(config);
  use_trained_size(line.run_flags, request);
  use_trained_classes(request);
  if (is_resumed) check_recorded_model(config, request.run_directory);
}

// Does nothing if the flags of `line` choose a plan.
void use_saved_plan(const CommandLine& line,
                    const std::vector<layers::LayerCost>& layers,
                    RunRequest& request) {
  if (chooses_plan(line.run_flags)) return;
  const planner::SavedPlan saved =
      planner::read_saved_plan(request.run_directory, request.config,
                               request.expected_workers(), layers);
  request.saved_plan = saved.plan.has_value();
  if (saved.plan) {
    request.notes.push_back("plan: as saved: " + saved.plan->reason);
  } else if (!saved.plan_error.empty()) {
    request.notes.push_back("plan: chosen anew, the saved one is not used: " +
                            saved.plan_error);
  }
}

// The options that the machine's limits must not change: those given by a flag
// or in a file. The saved values of a resumed run do not count, because they
// may come from another machine's limits.
std::set<std::string> kept_keys(const configs::RunConfig& config,
                                std::set<std::string> given, bool is_resumed) {
  if (is_resumed) return given;
  if (config.memory_limit > 0) given.insert("memory_limit");
  if (config.host_memory_limit > 0) given.insert("host_memory_limit");
  if (config.loader_threads != configs::RunConfig().loader_threads) {
    given.insert("loader_threads");
  }
  return given;
}

// The plan; a refusal begins with the machine's bounds, which are not printed
// otherwise.
plan::Plan plan_within(const std::vector<std::string>& bounds,
                       const RunRequest& request, planner::PlanSearch& search) {
  try {
    return planner::plan_or_throw(request.config, request.expected_workers(),
                                  search, request.remedies);
  } catch (const Error& error) {
    if (bounds.empty() || error.exit_code() != ExitCode::kNoPlan) throw;
    throw Error(error.tag(), joined(bounds, "; ") + ": " + error.text(),
                error.remedy(), error.exit_code());
  }
}

// Takes what was measured on such a card. A file that is wrong does not stop a
// training.
void take_measured_speed(const std::vector<layers::LayerCost>& layers,
                         RunRequest& request) {
  planner::CardSpeed& card = request.card;
  if (card.name.empty()) return;
  try {
    card = planner::measured_speed(card, request.config, layers);
    const std::string note = planner::source_note(card);
    if (!note.empty()) request.notes.push_back("card: " + note.substr(2));
  } catch (const Error& error) {
    request.notes.push_back("card: its speed is assumed: " +
                            std::string(error.what()));
  }
}

void note_large_batch(int64_t images, std::vector<std::string>& notes) {
  constexpr int64_t kMostWithUsualRules = 1024;
  if (images <= kMostWithUsualRules) return;
  notes.push_back(
      cat("batch ", images, ": above ", kMostWithUsualRules,
          " images the weight decay grows with the batch, and the clipped "
          "gradient does not: settings to begin with are in "
          "deploy/guide/many_cards.md, 'Batches above 1,024 images'"));
}

// Chooses the batch for --batch -1; returns a note that reports it.
// `by_machine`: the limits are the machine's, so that no larger --memory-limit
// helps.
std::string set_largest_batch(configs::RunConfig& config, int world_size,
                              const std::vector<layers::LayerCost>& layers,
                              bool by_machine) {
  planner::BatchChoice choice;
  try {
    choice = planner::largest_batch(config, world_size, layers);
  } catch (const Error& error) {
    if (!by_machine || error.exit_code() != ExitCode::kNoPlan) throw;
    throw Error(error.tag(), error.text(),
                "use a smaller --img or --cfg, or give the container or the "
                "machine more memory",
                ExitCode::kNoPlan);
  }
  config.global_batch_size = choice.global_batch_size;
  return "--batch -1: " + counted(choice.global_batch_size, "image") + ", " +
         format_bytes(choice.bytes) + " of " +
         format_bytes(config.memory_limit) + choice.remark;
}

}  // namespace

int workers_per_agent(const configs::RunConfig& config, bool is_resumed,
                      bool processes_given, int num_agents, int cards_here,
                      const std::optional<LauncherPlace>& place) {
  if (is_resumed && !processes_given && config.processes > 0) {
    if (config.processes % num_agents != 0) {
      throw Error(
          "resume",
          cat("the run has ", counted(config.processes, "process"), ", which ",
              counted(num_agents, "agent"), " cannot share equally"),
          "give --processes N, the number per agent");
    }
    return static_cast<int>(config.processes) / num_agents;
  }
  if (config.processes > 0) return static_cast<int>(config.processes);
  if (config.layout) {
    return std::max(1, config.layout->world_size() / num_agents);
  }
  const auto named = std::ssize(parse_device_list(config.device));
  if (named > 0) return static_cast<int>(named);
  const bool is_cpu = config.device == kCpuDevice;
  const bool is_told =
      place && place->workers > 0 && !(is_cpu && place->counts_cards);
  if (is_told) return place->workers;
  return is_cpu ? 1 : std::max(1, cards_here);
}

configs::RunConfig resumed_config(const std::string& run_directory,
                                  const std::vector<configs::FlagUse>& uses,
                                  std::vector<std::string>& notes) {
  const std::string file = run_directory + "/" + run_files::kRun;
  const configs::RunConfig saved =
      configs::parse_run_config(yaml::read_config_file(file, "resume"), file);
  configs::RunConfig base = saved;
  // In older run files an empty device meant the CPU; today it means automatic.
  if (base.device.empty()) base.device = kCpuDevice;
  base.inject.clear();  // a resumed run does not repeat the fault
  // The run's folder may come from another user, so only a flag may name a file
  // outside the folder.
  base.memory_trace.clear();
  const std::set<std::string> given = keys_given(uses);
  if (chooses_plan(uses)) {
    for (const configs::Option& option : configs::run_options()) {
      if (!option.of_plan) continue;
      configs::set_from_text(base, option, configs::default_text(option));
    }
  }
  configs::RunConfig config = configs::overlay_flags(base, uses);
  config.command = saved.command;
  config.resume = run_directory;
  // Keeps the precision that the run has chosen, even if the cards differ now.
  if (config.precision == configs::Precision::kAuto) {
    config.precision = saved.precision;
  }
  make_paths_absolute(config);
  // With a record of the model, another file of the same model is accepted.
  const bool has_record = std::filesystem::exists(
      std::filesystem::path(run_directory) / run_files::kModel);
  for (const configs::Option& option : configs::run_options()) {
    const std::string before = configs::value_text(saved, option);
    const std::string after = configs::value_text(config, option);
    if (before == after || option.key == "resume" || option.key == "inject" ||
        option.key == "memory_limit_is_machines") {
      continue;
    }
    if (option.key == "memory_trace" && after.empty()) {
      notes.push_back(
          "resume: no memory trace is written: give --memory-trace "
          "FILE again for one");
      continue;
    }
    if (changes_state(option, before, after) ||
        (option.key == "cfg" && !has_record)) {
      throw changed_in_mid_run(option, before, after, run_directory);
    }
    if (option.of_start) {
      configs::set_from_text(config, option, before);
      notes.push_back("resume: " + option.key + " stays " + shown(before) +
                      ": it is settled when a run starts");
      continue;
    }
    notes.push_back(
        "resume: " + option.key + " was " + shown(before) + " and is now " +
        (given.contains(option.key) ? shown(after) : "chosen anew"));
  }
  if (config.precision == configs::Precision::kAuto) {
    // Neither the flags nor the saved run have a precision.
    config.precision = configs::Precision::kFp32;
  }
  if (planner::chooses_batch_norm_groups(config)) {
    config.batch_norm_rule = planner::saved_batch_norm_rule(run_directory);
  }
  return config;
}

bool resumes(const CommandLine& line) {
  return keys_given(line.run_flags).contains("resume");
}

RunRequest resumed_request(const CommandLine& line, int workers) {
  RunRequest request;
  configs::RunConfig& config = request.config;
  config = configs::run_config_from_flags("train", line.run_flags);
  restore_run(line, request);
  request.workers_per_agent =
      workers > 0 ? workers : static_cast<int>(config.processes);
  config.processes = request.workers_per_agent;
  configs::take_augment_program(config, line.value_of("--augment-program"));
  configs::check_run_config(config);
  take_files(line, request);
  use_saved_plan(line, planner::layers_for_plan(config), request);
  configs::begin_hours(config, std::chrono::system_clock::now());
  return request;
}

RunRequest make_run_request(const CommandLine& line,
                            const std::optional<LauncherPlace>& place,
                            int cores, const AskData& ask, bool must_fit,
                            const std::optional<wire::NodeCard>& elsewhere,
                            const MachineLimits& machine) {
  RunRequest request;
  configs::RunConfig& config = request.config;
  const bool only_plans = line.command == "plan";
  config = configs::run_config_from_flags(only_plans ? "train" : line.command,
                                          line.run_flags);
  const bool is_resumed = !config.resume.empty();
  if (is_resumed) {
    restore_run(line, request);
  } else {
    forget_found_anchors(config);
    request.run_directory = new_run_directory(config).string();
    if (config.command == "train") {
      configs::require_inputs_kept(config, config_file(line.run_flags),
                                   request.run_directory);
    }
  }
  if (line.command == "train" ||
      line.has("--augment-program")) {  // a plan may lack it
    configs::take_augment_program(config, line.value_of("--augment-program"));
  }
  if (config.cfg.empty() && config.weights.empty() &&
      config.command == "train") {
    config.cfg = "yolov5s";
    if (line.command != "plan" ||
        line.value_of("--sweep").find("cfg=") == std::string::npos) {
      request.notes.push_back(
          "no --cfg and no --weights: training yolov5s from scratch; --cfg "
          "yolov5su has a newer head (on COCO 43.0 AP instead of 37.4, by its "
          "authors)");
    }
  }
  request.num_agents = place ? place->size : 1;
  if (config.device.empty()) config.device = kAutomaticDevice;
  const std::set<std::string> given = keys_given(line.run_flags);
  if (config.command == "train" && is_automatic_device(config.device) &&
      !given.contains("device") && place && place->promises_cards) {
    config.device = kAllCards;
  }
  const NodeCards here = elsewhere ? NodeCards() : find_node_cards();
  const int local_size = place ? place->local_size : 1;
  request.workers_per_agent = workers_per_agent(
      config, is_resumed, given.contains("processes"), request.num_agents,
      static_cast<int>(here.cards.size()) / local_size, place);
  config.processes = request.workers_per_agent;
  const configs::RunConfig asked = config;
  if (!only_plans) check_devices(config, place, request.workers_per_agent);
  configs::Precision automatic = configs::Precision::kFp32;
  if (elsewhere) {
    const std::vector cards = {*elsewhere};
    const std::string precision = coordinator::settle_precision(config, cards);
    if (!precision.empty()) request.notes.push_back(precision);
    automatic = advised_precision(coordinator::choose_precision(config, cards));
    if (!elsewhere->name.empty()) {
      request.card = planner::speed_of_card(elsewhere->name);
    }
  } else {
    automatic = settle_as_here(here, only_plans, request);
  }
  if (given.contains("memory_limit")) config.memory_limit_is_machines = false;
  const int workers_here = request.workers_per_agent * local_size;
  const MachineShare share{machine, workers_here, request.expected_workers(),
                           kept_keys(config, given, is_resumed)};
  const bool limits_batch = limit_largest_batch(share, config);
  configs::check_run_config(config);
  if (!only_plans) {
    configs::check_run_sources(config);
    check_mpi(config, place, request.workers_per_agent);
  }
  take_files(line, request);
  if (config.teacher_digest.empty()) planner::describe_teacher(config);
  check_faults(config, request.expected_workers());
  // The threads are set before the plan, as an operator's memory grows with its
  // threads.
  request.remedies =
      remedy_scope(line, config, place.has_value(), request.num_agents, cores);
  if (!is_resumed) {
    request.remedies.precisions = {automatic, configs::Precision::kFp32};
  }
  if (config.threads == 0) {
    config.threads = std::max(1, cores / workers_here);
  }
  const auto limits_of = [&config] {
    return std::pair(config.memory_limit, config.host_memory_limit);
  };
  const auto limits_before = limits_of();
  const std::vector<layers::LayerCost> layers =
      planner::layers_for_plan(config);
  if (!layers.empty() && config.command == "train") {
    const bool has_anchors = layers::has_anchors(planner::table_of_run(config));
    for (const std::string& text :
         configs::check_head_settings(config, has_anchors)) {
      request.notes.push_back(text);
    }
  }
  if (!only_plans) take_measured_speed(layers, request);
  planner::PlanSearch search({layers, request.card});
  const MachineBounds bounds = bound_by_machine(share, search, config);
  // `headroom plan` prints the machine's limits only if they have an effect.
  if (!only_plans || limits_of() != limits_before) {
    request.notes.insert(request.notes.end(), bounds.lines.begin(),
                         bounds.lines.end());
  }
  // A resumed run keeps the label counts that it was planned with.
  const bool knows_labels = is_resumed &&
                            !keys_given(line.run_flags).contains("data") &&
                            !config.label_counts.empty();
  make_paths_absolute(config);
  WantedFacts wanted;
  const bool defines_run =
      only_plans ? line.has("--write") : !place || place->rank == 0;
  // Planning needs to know whether pixels have a range, not its values.
  const bool measures = take_value_range(config);
  wanted.value_range = measures && (only_plans || defines_run);
  if (wants_labels(config, only_plans) && !knows_labels) {
    wanted.label_counts = true;
    wanted.anchors = defines_run && wants_anchors(config);
  }
  if (defines_run && counts_for_optimizer(config)) wanted.label_counts = true;
  if (ask && wanted.any()) ask(config, wanted);
  if (!is_resumed && !config.value_range.empty()) {
    request.notes.push_back("range: 16 bits, in which " + config.value_range +
                            " are 0 and 1" +
                            (measures ? ", measured as data.yaml asks" : ""));
  }
  if (config.global_batch_size == configs::kLargestBatch) {
    std::string note = set_largest_batch(config, request.expected_workers(),
                                         layers, limits_batch);
    if (limits_batch && give_loaders_more(share, search, config)) {
      config.global_batch_size = configs::kLargestBatch;
      note =
          set_largest_batch(config, request.expected_workers(), layers, true);
    }
    request.notes.push_back(note);
  }
  take_optimizer(config, request.notes);
  if (is_resumed && !only_plans) use_saved_plan(line, layers, request);
  if (!request.saved_plan) {
    require_same_training(bounds, request.expected_workers(), request.remedies,
                          search, config);
  }
  if (must_fit && !request.saved_plan) {
    const plan::Plan plan = plan_within(bounds.lines, request, search);
    if (line.command == "train" && config.memory_limit > 0) {
      request.notes.push_back("plan: " + plan.reason);
    }
    if (const auto why = planner::smaller_groups_warning(
            config, plan, {layers, request.card}, request.remedies)) {
      request.notes.push_back("warning: " + *why);
    }
  }
  if (!only_plans) {
    configs::begin_hours(config, std::chrono::system_clock::now());
    if (!is_resumed) note_large_batch(config.global_batch_size, request.notes);
  }
  // make_paths_absolute() skips files that do not exist, such as this one.
  if (!config.memory_trace.empty()) {
    config.memory_trace =
        std::filesystem::absolute(config.memory_trace).lexically_normal();
  }
  config.processes = request.expected_workers();
  // Other nodes may have other cards: the coordinator chooses for all of them.
  if (place && place->size > 1 && asked.device != kCpuDevice) {
    config.device = asked.device;
    config.precision = asked.precision;
    config.checks_float16 = asked.checks_float16;
    request.devices = is_automatic_device(asked.device)
                          ? "on what the nodes have"
                          : "cards " + asked.device + " of each node";
  }
  return request;
}

namespace {

std::string by(int64_t height, int64_t width) {
  return cat(height, " x ", width);
}

}  // namespace

std::string image_size_text(const configs::RunConfig& config,
                            const std::vector<layers::LayerCost>& layers) {
  const std::string asked = by(config.image_height, config.image_width);
  if (layers.empty()) return asked;
  const int64_t stride = layers::largest_stride(layers);
  const std::string used =
      by(layers::rounded_image_size(config.image_height, stride),
         layers::rounded_image_size(config.image_width, stride));
  return used == asked ? asked : used + " (rounded up from " + asked + ")";
}

std::string model_line(const RunRequest& request) {
  const configs::RunConfig& config = request.config;
  const std::vector<layers::LayerCost> layers =
      planner::layers_for_plan(config);
  const int64_t stride = layers.empty() ? 1 : layers::largest_stride(layers);
  const auto pixels = static_cast<double>(
      layers::rounded_image_size(config.image_height, stride) *
      layers::rounded_image_size(config.image_width, stride));
  int64_t parameters = 0;
  double flops = 0;
  for (const layers::LayerCost& layer : layers) {
    parameters += layer.parameters;
    flops += 2 * layer.multiply_adds_per_pixel * pixels;
  }
  const std::string text =
      "model: " + significant_text(static_cast<double>(parameters) / 1e6, 3) +
      " million parameters, " + significant_text(flops / 1e9, 3) +
      " GFLOPs an image";
  if (config.command == "val") return text;
  const std::string model = layers.empty() ? "" : text + "; ";
  const std::string seconds = cat(configs::kSecondsBetweenCheckpoints, " s");
  const bool skips =
      configs::validation_share(config, request.expected_workers()) > 0;
  const std::string each =
      skips ? "after each validated epoch" : "after each epoch";
  const std::string every = config.checkpoint_every_steps > 0
                                ? counted(config.checkpoint_every_steps, "step")
                                : "";
  return model + (every.empty()
                      ? (config.nosave ? "no checkpoint before the end"
                                       : "a checkpoint " + each +
                                             ", and every " + seconds)
                      : "a checkpoint every " + every +
                            (config.nosave ? "" : " and " + each));
}

std::string headline(const RunRequest& request) {
  const configs::RunConfig& config = request.config;
  const std::string model = config.cfg.empty() ? config.weights : config.cfg;
  return cat("headroom ", wire::kVersion, " ", config.command, ": ",
             std::filesystem::path(model).filename().string(), ", ",
             image_size_text(config, planner::layers_for_plan(config)),
             ", batch ", config.global_batch_size, ", ",
             request.devices.empty() ? coordinator::precision_text(config)
                                     : request.devices,
             ", processes ", request.expected_workers(), " x ",
             counted(config.threads, "thread"), "; results in ",
             request.run_directory);
}

}  // namespace headroom::cli
