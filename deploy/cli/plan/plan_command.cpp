// headroom plan: shows the plan that train would use, and the reason for it.
// Starts no training process.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "deploy/cli/annex.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/plan/measure_card.h"
#include "deploy/cli/plan/plan_answer.h"
#include "deploy/cli/plan/plan_machines.h"
#include "deploy/cli/plan/plan_prices.h"
#include "deploy/cli/plan/plan_report.h"
#include "deploy/cli/plan/plan_segments.h"
#include "deploy/cli/plan/plan_sweep.h"
#include "deploy/cli/process/dataset_query.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/node_cards.h"
#include "deploy/cli/remedy_scope.h"
#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/run_files.h"
#include "parallel/base/terminal.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::cli {

// Writes a planned run as run.yaml and plan.json, for a worker that runs
// without a coordinator (headroom-worker --standalone). Creates `folder` if it
// does not exist. Throws Error (exit 2) if a file exists or cannot be written.
void write_plan_files(const std::filesystem::path& folder,
                      const configs::RunConfig& config, const plan::Plan& plan);

namespace {

namespace fs = std::filesystem;

void write_new(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw Error(
        "plan",
        "cannot write " + path.string() + " (" + std::strerror(errno) + ")",
        "name a writable folder with --write DIR");
  }
}

}  // namespace

void write_plan_files(const fs::path& folder, const configs::RunConfig& config,
                      const plan::Plan& plan) {
  const fs::path run = folder / run_files::kRun;
  const fs::path how = folder / run_files::kPlan;
  for (const fs::path& file : {run, how}) {
    // Existing files may belong to a run.
    if (fs::exists(file)) {
      throw Error("plan", file.string() + " is there already",
                  "name another folder with --write DIR");
    }
  }
  std::error_code ignored;  // the writes below report the failure
  fs::create_directories(folder, ignored);
  write_new(run, configs::to_yaml(config));
  write_new(how, plan::plan_to_json(plan));
}

namespace {

void say(const std::string& text) { std::fputs(text.c_str(), stdout); }

void say_notes(const CommandLine& line, const RunRequest& request) {
  for (const std::vector<std::string>& notes : {line.notes, request.notes}) {
    for (const std::string& note : notes) {
      std::fprintf(stderr, "%s\n", note.c_str());
    }
  }
}

// Says how much memory the run needs in fp32, which it uses if the check of
// fp16 fails. Otherwise a user would see only at the start of a training that
// it does not fit.
std::string float32_note(configs::RunConfig config, int world_size,
                         const std::vector<layers::LayerCost>& layers) {
  config.precision = configs::Precision::kFp32;
  const planner::PlanDecision wide =
      planner::choose_plan(config, world_size, layers);
  return "precision: train checks one step in fp16 first; in fp32, which it "
         "takes if the check fails, " +
         (wide.plan ? "the tensors of the fullest card take " +
                          format_bytes(planner::fullest_rank_bytes(*wide.plan))
                    : "it is refused: " + wide.reason);
}

// Ranks the machines of a price list. Returns the exit code.
int say_prices(const CommandLine& line) {
  const PriceAnswer answer = price_plans(line, ask_data);
  say(line.has("--json") ? prices_json(answer) + "\n" : prices_text(answer));
  return exit_code_of(answer);
}

bool names_machines(const CommandLine& line) {
  return line.has("--cluster") || line.has("--gpu") || line.has("--gpu-memory");
}

// Plans for this machine's cards if the flags name no other cards, as a run
// would do.
CommandLine with_cards_here(CommandLine line) {
  const configs::RunConfig asked =
      configs::run_config_from_flags("train", line.run_flags);
  if (names_machines(line) || line.has("--prices") || !asked.resume.empty() ||
      std::getenv(kDevicePluginVariable) != nullptr ||
      !(is_automatic_device(asked.device) || asked.device == kAllCards)) {
    return line;
  }
  std::vector<wire::NodeCard> cards = find_node_cards().cards;
  int64_t wanted = asked.layout ? asked.layout->world_size() : asked.processes;
  if (wanted == 0) wanted = std::ssize(cards);
  // If there are too few cards, the request is refused later.
  if (cards.empty() || wanted > std::ssize(cards)) return line;
  cards.resize(static_cast<size_t>(wanted));
  std::erase_if(line.run_flags, [](const configs::FlagUse& use) {
    return use.spelling == "--processes";
  });
  const std::string list = joined(cards, ",", [](const wire::NodeCard& card) {
    return std::to_string(card.index);
  });
  line.run_flags.push_back({"--device", {list}});
  return line;
}

// Measures the card and keeps the result, from which the plan takes its speed.
void measure(const RunRequest& request, const wire::NodeCard& card) {
  std::fprintf(stderr, "measuring %s, at most %d s\n",
               printable(card.name).c_str(), kSecondsToMeasure);
  const configs::CardMeasurement measurement = measure_card(request, card);
  std::fprintf(stderr, "measured %s\n",
               printable(measured_text(measurement)).c_str());
  const fs::path file = configs::store_measurement(measurement);
  std::fprintf(stderr, "kept in %s\n", printable(file.string()).c_str());
}

}  // namespace

int plan_command(const CommandLine& asked) {
  const CommandLine given = with_cards_here(asked);
  if (given.has("--prices") && !names_machines(given) &&
      !given.has("--measure")) {
    return say_prices(given);
  }
  if (given.has("--show") && given.value_of("--show") != "schedule") {
    throw Error(
        "command line",
        "--show " + given.value_of("--show") + ": there is no such drawing",
        "use --show schedule");
  }
  std::optional<wire::NodeCard> measured;
  if (given.has("--measure")) measured = card_to_measure(asked, nvml::Nvml());
  const std::optional<PlanMachines> machines = machines_of(given, nvml::Nvml());
  const CommandLine line = machines ? with_machines(given, *machines) : given;
  const bool is_json = line.has("--json");
  const std::string sweep = line.value_of("--sweep");
  const std::string folder = line.value_of("--write");
  for (const char* flag : {"--write", "--report"}) {
    if (sweep.empty() || !line.has(flag)) continue;
    throw Error("command line",
                std::string(flag) + " writes one plan, --sweep makes many",
                "leave one of them out");
  }
  if (!sweep.empty()) check_beside_sweep(given);
  // The file is checked first, because planning may take a while.
  if (line.has("--report")) check_plan_page(line.value_of("--report"));
  // No plan is needed yet (must_fit is false), because it is made below. A
  // sweep asks about many requests, so the limits of this machine, which depend
  // on one request, are not used for it.
  RunRequest request = make_run_request(
      line, std::nullopt, usable_cores(), ask_data,
      /*must_fit=*/false, machines ? machines->elsewhere() : std::nullopt,
      machines || !sweep.empty() ? MachineLimits() : read_machine_limits());
  const int world_size = request.expected_workers();
  if (machines) check_layout(*machines, request.config);
  if (machines && !machines->note.empty() && (is_json || !sweep.empty())) {
    request.notes.push_back("card: " + machines->note);
  }
  const std::string unusable = why_unusable(machines);
  const auto say_machines = [&] {
    if (!machines || is_json) return;
    if (!unusable.empty()) say("cannot train: " + unusable + "\n");
    say(machines_text(*machines));
  };
  if (!sweep.empty()) {
    say_machines();
    say_notes(line, request);
    const StepSeconds step_seconds =
        [&](const configs::RunConfig& config, const plan::Plan& plan,
            const std::vector<layers::LayerCost>& layers)
        -> std::optional<double> {
      const std::optional<PlanForecast> forecast =
          forecast_of(given, machines, config, plan, layers, request.card);
      if (!forecast) return std::nullopt;
      return forecast->step.seconds();
    };
    const auto cells = sweep_plans(request.config, world_size,
                                   parse_sweep(sweep, request.config),
                                   request.card, step_seconds);
    say(is_json ? sweep_json(cells) + "\n"
                : assumptions_text(request.config) + sweep_text(cells));
    return 0;
  }
  if (measured) measure(request, *measured);
  request.remedies.command_with = [&](const planner::Remedy& remedy) {
    return command_with(given, remedy);
  };
  if (machines) bound_remedies(request.remedies, *machines, request.config);
  PlanReport report;
  try {
    report = make_plan_report(request.config, world_size,
                              line.has("--show") || line.has("--report"),
                              request.remedies, request.card);
    if (machines) {
      report.segments =
          segments_of(request.config, report.layers, report.plan,
                      machines->segment_room(report.plan),
                      machines->cards.empty() ? &request.remedies : nullptr);
    }
  } catch (const Error&) {
    say_machines();  // the refusal mentions a limit of these machines
    throw;
  }
  report.forecast = forecast_of(given, machines, request.config, report.plan,
                                report.layers, report.card);
  report.run =
      run_of(given, machines, request.config, report.layers, report.forecast);
  report.unusable = unusable;
  if (request.config.checks_float16) {
    request.notes.push_back(
        float32_note(request.config, world_size, report.layers));
  }
  const int exit_code =
      unusable.empty() ? 0 : static_cast<int>(ExitCode::kNoPlan);
  if (has_judged_anchors(request.config)) {
    request.notes.push_back("anchors: " + request.config.anchors_reason);
  }
  if (!folder.empty()) write_plan_files(folder, request.config, report.plan);
  const bool knows_data =
      !request.config.data.empty() || request.config.synthetic_input;
  const std::string command =
      unusable.empty() ? train_command(given, machines, knows_data) : "";
  if (line.has("--report")) {
    write_plan_page(line.value_of("--report"),
                    {.name = "Plan of " + report.model,
                     .config = report.config,
                     .plan = report.plan,
                     .verdict = plan_verdict(report, machines),
                     .command = command,
                     .numbers = plan_report_text(report)});
    if (!line.has("--show")) report.schedule.clear();
  }
  if (is_json) {
    say_notes(line, request);
    say(plan_report_json(report) + "\n");
    return exit_code;
  }
  const size_t columns = terminal_size_of(STDOUT_FILENO).columns;
  say(plan_answer_text(report, machines, command, columns));
  if (line.has("--details")) {
    say(machines ? machines_text(*machines) : "");
    say("\n" + plan_report_text(report));
  } else {
    say(line.has("--show") ? "\n" + schedule_text(report) : "");
    say(labelled("more",
                 "--details: parts of a step, memory of each stage and phase, "
                 "layers, samples, other layouts",
                 columns));
  }
  std::fflush(stdout);  // print the answer before the notes
  say_notes(line, request);
  if (!given.has("--prices")) return exit_code;
  say("\n");
  return say_prices(given);
}

}  // namespace headroom::cli
