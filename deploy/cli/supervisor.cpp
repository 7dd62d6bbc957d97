#include "deploy/cli/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>

#include "coordinator/run/restart_policy.h"
#include "coordinator/run/run_ending.h"
#include "coordinator/service/control_client.h"
#include "coordinator/service/listen_address.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/event_follower.h"
#include "deploy/cli/process/file_descriptor.h"
#include "deploy/cli/process/line_log.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/show/progress_reporter.h"
#include "deploy/cli/show/run_result.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "proto/channel_security.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kStatusInterval = std::chrono::milliseconds(250);
constexpr auto kStartTimeout = std::chrono::seconds(30);
// How long to wait for the message about the run's end after a child has ended:
// the child may have ended because of the run's end, and its end may be noticed
// before the message arrives.
constexpr auto kPatience = std::chrono::seconds(3);
// Longer than an agent waits for its workers to save and end (agent.h).
constexpr auto kGrace = std::chrono::seconds(75);
// How long to wait for workers that save (kTimeToSave), and after which time a
// line reports this wait (kQuietTime).
constexpr auto kTimeToSave = std::chrono::seconds(3);
constexpr auto kQuietTime = std::chrono::milliseconds(200);
// How long to look for a restarted coordinator.
constexpr auto kReconnect = std::chrono::seconds(5);

const RunExit kStoppedAtOnce = {130, "stopped at once"};

void add_words(ChildOptions& child, const std::vector<std::string>& words) {
  child.command.insert(child.command.end(), words.begin(), words.end());
}

// "the coordinator was killed by signal 9 (Killed); its last words: …". A
// refusal is passed on unchanged.
RunExit end_of_child(ChildProcess& child) {
  const int exit_code = *child.exit_code();
  if (child.refusal()) {
    return {exit_code == 0 ? static_cast<int>(ExitCode::kResource) : exit_code,
            child.refusal()->line()};
  }
  const std::string words = child.telling_line();
  return {static_cast<int>(ExitCode::kResource),
          "[launch] the " + child.name() + " " +
              coordinator::describe_exit(exit_code) +
              (words.empty() ? "" : "; its last words: " + words)};
}

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, Terminal& terminal)
      : options_(options),
        terminal_(terminal),
        config_(memory_file(configs::to_yaml(options.request.config))),
        log_(options.request.run_directory, "coordinator"),
        reporter_(terminal.style()) {}

  SupervisedRun run() {
    for (;;) {
      std::optional<RunExit> end = start();
      if (!end) end = follow();
      const bool was_kill = coordinator_ && coordinator_->was_killed();
      show(reporter_.finish());
      const bool was_orphaned = finish();
      if (was_kill && is_started_again(*end)) continue;
      if (was_orphaned) {
        end->reason += "; " + saved_state(options_.request.run_directory);
      }
      take_written_outcome(*end);
      return {*end, status_};
    }
  }

 private:
  // Starts all processes again if the coordinator was killed before it had
  // logged a state from which a successor could continue. Not with several
  // agents, because the other agents would not be restarted.
  bool is_started_again(const RunExit& end) {
    if (options_.request.num_agents > 1 || status_.generation > 0 ||
        options_.interrupts() > 0) {
      return false;
    }
    const coordinator::RestartDecision decision =
        start_budget_.note_end(128 + SIGKILL, /*steps=*/0);
    if (!decision.restart) return false;
    terminal_.print(end.reason +
                    "; the run had not begun and is started again");
    std::this_thread::sleep_for(decision.delay);
    agent_.reset();
    coordinator_.reset();
    client_.reset();
    held_address_.reset();
    was_listening_ = false;
    remove_run_log(options_.log);
    status_ = {};
    child_ended_.reset();
    coordinator_restarts_ = {};
    agent_restarts_ = {};
    return true;
  }

  // This process or the coordinator may have been stopped (Ctrl-Z) while
  // training ended. This process then gets no message about the end, but the
  // run's own file has the result.
  void take_written_outcome(RunExit& end) {
    if (end.exit_code != static_cast<int>(ExitCode::kResource)) return;
    const std::optional<WrittenEnd> written =
        written_end(options_.request.run_directory, started_);
    if (!written || written->exit_code != 0) return;
    end = {0, written->reason};
    status_.exit_code = 0;
    status_.reason = written->reason;
    status_.result_json = written->summary_json;
    status_.run_directory = options_.request.run_directory;
  }

  ChildOptions child_options(const std::string& name) {
    ChildOptions child;
    child.name = name;
    child.may_refuse = true;
    child.command = {options_.headroom_program.string(), name};
    add_words(child, options_.security.flags());
    // Once the coordinator listens, its log lines also arrive as events.
    const bool is_coordinator = name == "coordinator";
    child.on_line = [this, is_coordinator](const ChildLine& line) {
      if (is_coordinator) log_.add("coordinator", line);
      if (is_coordinator && is_listening_) return;
      if (line.is_shown_at_once()) terminal_.print(line.text);
    };
    return child;
  }

  // Starts the coordinator at `listen`; sets address_. Returns nullopt on
  // success.
  std::optional<RunExit> start_coordinator(const std::string& listen) {
    const RunRequest& request = options_.request;
    is_listening_ = false;
    int report[2];
    HEADROOM_CHECK(pipe2(report, O_CLOEXEC) == 0, "out of file descriptors");
    const FileDescriptor reading(report[0]);
    {
      const FileDescriptor writing(report[1]);
      ChildOptions child = child_options("coordinator");
      add_words(child, {"--config-fd", std::to_string(config_->get()),
                        "--report-fd", std::to_string(writing.get()),
                        "--run-directory", request.run_directory, "--listen",
                        listen, "--log", options_.log, "--expected-workers",
                        std::to_string(request.expected_workers())});
      if (request.saved_plan) add_words(child, {"--saved-plan"});
      if (was_listening_) add_words(child, {"--successor"});
      if (!options_.metrics.empty()) {
        add_words(child, {"--metrics", options_.metrics});
      }
      child.passed_fds = {config_->get(), writing.get()};
      coordinator_ = std::make_unique<ChildProcess>(std::move(child));
    }
    address_.clear();
    if (!wait_for_address(reading.get())) {
      if (options_.interrupts() > bearable_interrupts()) return kStoppedAtOnce;
      if (!coordinator_->wait(std::chrono::seconds(1))) {
        return RunExit{5,
                       "[launch] the coordinator did not listen within 30 s"};
      }
      return end_of_child(*coordinator_);
    }
    is_listening_ = true;
    return std::nullopt;
  }

  void start_agent() {
    ChildOptions child = child_options("agent");
    if (!options_.interface.empty()) {
      add_words(child, {"--interface", options_.interface});
    }
    const std::string& program = options_.request.config.augment_program;
    if (!program.empty() && options_.request.config.command == "train") {
      add_words(child, {"--augment-program", program});
    }
    add_words(child, {"--supervised", "--coordinator", address_, "--processes",
                      std::to_string(options_.request.workers_per_agent),
                      "--spot", options_.spot});
    agent_ = std::make_unique<ChildProcess>(std::move(child));
  }

  // Returns nullopt on success.
  std::optional<RunExit> start() {
    if (auto end = start_coordinator(options_.listen)) return end;
    hold_address();
    if (options_.on_address) options_.on_address(address_);
    start_agent();
    client_ = coordinator::ControlClient::connect(address_);
    follower_ = std::make_unique<EventFollower>(address_);
    return std::nullopt;
  }

  // Keeps the address for a restarted coordinator. A Unix socket's address need
  // not be kept: its folder belongs to this run.
  void hold_address() {
    was_listening_ = true;
    if (wire::is_unix_socket(address_)) return;
    const int held =
        coordinator::hold_address(coordinator::parse_listen_address(address_));
    was_listening_ = held >= 0;
    if (held >= 0) held_address_.emplace(held);
  }

  // While a coordinator is restarted in mid-run, the first interrupt must not
  // end the wait: an orderly stop needs the coordinator.
  int bearable_interrupts() const { return follower_ ? 1 : 0; }

  // Returns false if the coordinator closed the pipe before it sent an address,
  // after kStartTimeout, or after an interrupt.
  bool wait_for_address(int fd) {
    const Clock::time_point end = Clock::now() + kStartTimeout;
    while (Clock::now() < end &&
           options_.interrupts() <= bearable_interrupts()) {
      pollfd waiting{fd, POLLIN, 0};
      if (poll(&waiting, 1, 100) <= 0) continue;
      char buffer[512];
      const ssize_t count = read(fd, buffer, sizeof buffer);
      if (count <= 0) return false;
      address_.append(buffer, static_cast<size_t>(count));
      if (address_.ends_with('\n')) {
        address_.pop_back();
        return true;
      }
    }
    return false;
  }

  void show(const ProgressReporter::Output& output) {
    if (output.header) terminal_.print_header(*output.header);
    for (const std::string& line : output.lines) terminal_.print(line);
    if (output.live) terminal_.set_live(*output.live);
  }

  void show_news(Clock::time_point now) {
    const std::vector<wire::EventRecord> events = follower_->take();
    if (options_.on_events) options_.on_events(events);
    // Prints the progress first, so that the user sees at which step the events
    // happened.
    if (!events.empty() || now - last_status_ >= kStatusInterval) {
      show_progress(now);
    }
    for (const wire::EventRecord& event : events) {
      // If all workers are on this machine, the headline has named the devices.
      if (event.event == EventKind::kDevices && !event.warning &&
          options_.request.num_agents > 1) {
        terminal_.print("devices: " + event.reason);
      }
      show(reporter_.event(event, now));
    }
  }

  void show_progress(Clock::time_point now) {
    last_status_ = now;
    try {
      status_ = client_->status();
      if (options_.on_status) options_.on_status(status_);
      if (!first_step_ && status_.progress.num_epochs > 0) {
        first_step_ = status_.progress.step;
      }
      show(reporter_.update(status_, terminal_.width(), now));
    } catch (const Error&) {
      // end_of_the_children() reports the reason.
    }
  }

  // The state of a child's restarts.
  struct Restarts {
    coordinator::RestartBudget budget;
    std::optional<Clock::time_point> due;
    bool is_over = false;     // the child is not restarted any more
    bool has_failed = false;  // the newest restart did not succeed
  };

  // Whether `child` was killed and must be restarted now. Prints the decision.
  bool is_due(ChildProcess& child, Restarts& restarts, const std::string& where,
              Clock::time_point now) {
    if ((!child.was_killed() && !restarts.has_failed) || restarts.is_over ||
        status_.over() || options_.interrupts() > 0) {
      restarts.due.reset();
      return false;
    }
    if (!restarts.due) {
      // A coordinator may have died before it reported the newest steps, which
      // its workers have committed.
      const auto last = records::last_step(options_.request.run_directory);
      const coordinator::RestartDecision decision = restarts.budget.note_end(
          restarts.has_failed ? static_cast<int>(ExitCode::kResource)
                              : *child.exit_code(),
          std::max(status_.progress.step, last ? last->step + 1 : 0));
      terminal_.print(
          "the " + child.name() + " " +
          coordinator::describe_exit(*child.exit_code()) + ": " +
          (decision.restart ? "it is started again" + where : decision.reason));
      restarts.is_over = !decision.restart;
      if (restarts.is_over) return false;
      restarts.due = now + decision.delay;
    }
    if (now < *restarts.due) return false;
    restarts.due.reset();
    child_ended_.reset();
    return true;
  }

  // Restarts killed children. A coordinator continues at its address with its
  // log; an agent starts new workers.
  void restart_children(Clock::time_point now) {
    const std::string address = address_;
    if (is_due(*coordinator_, coordinator_restarts_, " at " + address, now)) {
      const auto end = start_coordinator(address);
      coordinator_restarts_.has_failed = end.has_value();
      // The start is tried again, unless the coordinator refused its log.
      if (end) {
        address_ = address;
        const auto& refusal = coordinator_->refusal();
        coordinator_restarts_.is_over =
            refusal && refusal->tag == coordinator::kLogTag;
        if (!coordinator_restarts_.is_over) terminal_.print(end->reason);
      }
    }
    if (is_due(*agent_, agent_restarts_, "", now)) start_agent();
  }

  // The run's end as the coordinator reported it.
  RunExit told_end() const {
    return {.exit_code = status_.exit_code,
            .reason = status_.reason,
            .says_how_to_go_on = status_.says_how_to_go_on};
  }

  // The run's end, derived from a child that ended too early.
  std::optional<RunExit> end_of_the_children(Clock::time_point now) {
    ChildProcess* first = nullptr;
    if (agent_->exit_code() && !agent_restarts_.due) first = agent_.get();
    if (coordinator_->exit_code() && !coordinator_restarts_.due) {
      first = coordinator_.get();
    }
    if (first == nullptr) return std::nullopt;
    if (!child_ended_) child_ended_ = now;
    if (now - *child_ended_ < kPatience) return std::nullopt;
    if (status_.over()) return told_end();
    RunExit end = end_of_child(*first);
    // The refusal of a restarted coordinator does not mean that the request was
    // wrong.
    if (has_been_served()) {
      end.exit_code = static_cast<int>(ExitCode::kResource);
    }
    return end;
  }

  std::optional<RunExit> answer_interrupts() {
    const int count = options_.interrupts();
    if (count == 0 || count == answered_interrupts_) return std::nullopt;
    if (count == 1) {
      if (nothing_is_committed()) {
        return RunExit{130, "stopped before the first step was committed"};
      }
      if (!interrupted_) interrupted_ = Clock::now();
      try {
        client_->drain("interrupted");
        answered_interrupts_ = count;
        terminal_.print(
            "stopping at the next committed step (Ctrl-C again to stop at "
            "once)");
        return std::nullopt;
      } catch (const Error&) {
        // The coordinator has ended, or is not restarted yet.
        if (!coordinator_->exit_code() &&
            Clock::now() - *interrupted_ < kReconnect) {
          return std::nullopt;
        }
      }
    }
    return kStoppedAtOnce;
  }

  // Whether no step was committed since this command started or resumed the
  // run, so that nothing needs saving. Always false with several agents: the
  // other agents must first receive the run's end.
  bool nothing_is_committed() {
    if (options_.request.num_agents > 1) return false;
    try {
      status_ = client_->status();
    } catch (const Error&) {
      return false;
    }
    const bool is_known = status_.progress.num_epochs > 0;
    if (is_known && !first_step_) first_step_ = status_.progress.step;
    const bool goes_on = !options_.request.config.resume.empty();
    return status_.progress.step <= (goes_on ? first_step_.value_or(0) : 0);
  }

  RunExit follow() {
    while (true) {
      const Clock::time_point now = Clock::now();
      show_news(now);
      if (const std::optional<coordinator::RunStatus> last =
              follower_->final_status()) {
        status_ = *last;
        if (options_.on_status) options_.on_status(status_);
        show_news(now);
        return told_end();
      }
      if (auto end = answer_interrupts()) return *end;
      restart_children(now);
      if (auto end = end_of_the_children(now)) return *end;
      std::this_thread::sleep_for(kTick);
    }
  }

  // Waits for the child's end. Returns false after kGrace or a further
  // interrupt.
  bool has_left(ChildProcess& child) {
    const Clock::time_point end = Clock::now() + kGrace;
    const int interrupts = options_.interrupts();
    while (!child.wait(kTick)) {
      if (Clock::now() >= end || options_.interrupts() > interrupts) {
        return false;
      }
    }
    return true;
  }

  // Whether a coordinator has started the run. Steps may then exist already.
  bool has_been_served() const {
    return status_.generation > 0 || coordinator_restarts_.is_over;
  }

  // Whether the agent's workers train but no coordinator can end them.
  bool is_orphaned() {
    return has_been_served() && options_.interrupts() == 0 && agent_ &&
           !agent_->exit_code() && coordinator_ && coordinator_->exit_code();
  }

  // Kills the agent. Its workers then save the newest committed step, or end at
  // once if they have none. Waits for them, because only then is it known what
  // can be resumed. A third interrupt ends the wait.
  void kill_agent() {
    const Offspring workers(*agent_);
    const int bearable = std::min(2, options_.interrupts());
    agent_->send(SIGKILL);
    const Clock::time_point begin = Clock::now();
    bool is_said = false;
    while (!workers.wait(kTick)) {
      const Clock::duration passed = Clock::now() - begin;
      if (options_.interrupts() > bearable) {
        workers.kill();
        workers.wait(kTimeToSave);
        return;
      }
      if (passed >= kTimeToSave) {
        terminal_.print(
            "the workers go on saving, for half a minute at most; once they "
            "have left: headroom train --resume " +
            shell_word(options_.request.run_directory));
        return;
      }
      if (!is_said && passed >= kQuietTime) {
        terminal_.print(
            "saving the newest committed step (Ctrl-C again to leave it)");
        is_said = true;
      }
    }
  }

  // Ends all processes. Returns true if the workers had no coordinator, so that
  // they were asked to save the newest committed step.
  bool finish() {
    const bool is_over = status_.over();
    const bool saves = !is_over && is_orphaned();
    if (saves) {
      terminal_.print(
          "no coordinator is left: the workers are asked to save the newest "
          "committed step");
      agent_->send(SIGINT);
    }
    // The coordinator runs until its agents have received the result.
    if (agent_ && !((is_over || saves) && has_left(*agent_))) kill_agent();
    // At its end a server waits for a second until its idle clients have
    // noticed the end. Without these clients it ends at once.
    client_.reset();
    if (follower_ && follower_->final_status()) follower_.reset();
    if (coordinator_ && !(is_over && has_left(*coordinator_))) {
      coordinator_->terminate(std::chrono::seconds(0));
    }
    follower_.reset();
    return saves;
  }

  const SupervisorOptions& options_;
  Terminal& terminal_;
  const std::unique_ptr<FileDescriptor> config_;
  LineLog log_;
  Restarts coordinator_restarts_;
  Restarts agent_restarts_;
  coordinator::RestartBudget start_budget_;
  const std::filesystem::file_time_type started_ =
      std::filesystem::file_time_type::clock::now();
  ProgressReporter reporter_;
  std::string address_;
  // A restarted coordinator can take over the address.
  bool was_listening_ = false;
  // The address that restarted coordinators use again.
  std::optional<FileDescriptor> held_address_;
  std::atomic<bool> is_listening_{false};
  coordinator::RunStatus status_;
  Clock::time_point last_status_{};
  std::optional<int64_t> first_step_;  // the first step that was reported
  std::optional<Clock::time_point> child_ended_;
  int answered_interrupts_ = 0;
  std::optional<Clock::time_point> interrupted_;
  std::unique_ptr<coordinator::ControlClient> client_;
  std::unique_ptr<EventFollower> follower_;
  // Destroyed before the follower, which waits for the coordinator's end.
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> agent_;
};

}  // namespace

SupervisedRun supervise(const SupervisorOptions& options, Terminal& terminal) {
  return Supervisor(options, terminal).run();
}

}  // namespace headroom::cli
