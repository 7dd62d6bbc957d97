#include "deploy/cli/process/agent.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "configs/flags.h"
#include "configs/run_config.h"
#include "configs/worker_start.h"
#include "coordinator/service/control_client.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/core_binding.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/line_log.h"
#include "deploy/cli/process/node_cards.h"
#include "deploy/cli/process/oom_kills.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/shared_file.h"
#include "parallel/network/network_interfaces.h"
#include "parallel/planner/planner.h"
#include "proto/beat_channel.h"
#include "proto/channel_security.h"
#include "proto/member_identity.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(20);
// Longer than a worker may take to save (worker/control/agent_loss.h).
constexpr auto kTimeToSave = std::chrono::seconds(35);

std::string advertise_host(const AgentOptions& options) {
  // A run on one machine uses loopback even if an interface was named.
  const std::string towards = address_towards(options.coordinator);
  return options.interface.empty() || wire::is_loopback(towards)
             ? towards
             : interface_named(options.interface, network_interfaces()).address;
}

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options),
        node_id_(cat(this_host_name(), "-", getpid())),
        advertise_host_(advertise_host(options)),
        client_(coordinator::ControlClient::connect(options.coordinator)) {}

  RunExit run() {
    for (int k = 0; k < options_.processes; ++k) {
      slots_.emplace_back().worker_id = cat(node_id_, "-", k);
    }
    cards_ = find_node_cards();
    const wire::RegisterResponse run =
        client_->register_node(registration(), options_.registration_timeout);
    place_workers({run.slot_cards().begin(), run.slot_cards().end()});
    const interrupts::Watch watch_interrupts;
    // The file's name has the rank, because a launcher may start several agents
    // on a machine.
    log_ = std::make_unique<LineLog>(
        run.run_directory(),
        cat("workers-", this_host_name(), "-", options_.launcher_rank));
    run_directory_ = run.run_directory();
    configs::RunConfig config = configs::parse_run_config(
        run.run_config_yaml(), "the coordinator's run.yaml");
    // A worker's refusal would end the run, which may have begun long ago.
    if (config.command == "train") {
      configs::require_augment_program(config, options_.augment_program);
    }
    if (is_automatic_device(config.device)) {
      config.device = slots_.front().card ? kAllCards : kCpuDevice;
    }
    shares_devices_ = config.share_devices;
    threads_ = config.threads > 0
                   ? config.threads
                   : std::max(1, usable_cores() / options_.processes);
    say_unused_network(config);
    make_shared_files();
    for (size_t k = 0; k < slots_.size(); ++k) start_worker(k);
    return watch();
  }

 private:
  struct Slot {
    std::string worker_id;
    std::optional<wire::NodeCard> card;     // nullopt on the CPU, or if unknown
    std::unique_ptr<ChildProcess> process;  // nullptr if it did not start
    std::string failure;  // why the process could not be started
    bool reported = false;
    bool killed_here = false;  // this agent has sent SIGKILL
    // What OomKills found about the worker's end; no value before it is called.
    std::optional<std::string> host_memory;
    int successors = 0;
    std::optional<Clock::time_point> restart_at;

    bool ended() const { return process == nullptr || process->exit_code(); }
  };

  // Only the first agent of a machine prints this warning.
  void say_unused_network(const configs::RunConfig& config) const {
    if (options_.first_local_rank > 0) return;
    const bool speaks_nccl =
        planner::backend_of(config) == plan::Backend::kNccl;
    for (const std::string& sentence :
         unused_network(advertise_host_, network_interfaces(), rdma_devices(),
                        speaks_nccl)) {
      options_.print("warning: " + this_host_name() + ": " + sentence);
    }
  }

  coordinator::NodeRegistration registration() const {
    coordinator::NodeRegistration node{
        .node_id = node_id_,
        .hostname = this_host_name(),
        .launcher_rank = options_.launcher_rank,
        .worker_ids = {},
        .cards = cards_.cards,
        .no_card_reason = cards_.no_card_reason,
        .unusable_cards = cards_.unusable_cards,
        .launcher_size = options_.launcher_size,
        .first_local_slot = options_.first_local_rank};
    for (const Slot& slot : slots_) node.worker_ids.push_back(slot.worker_id);
    return node;
  }

  configs::WorkerStart start_of(const Slot& slot) const {
    return {.coordinator = options_.coordinator,
            .node_id = node_id_,
            .worker_id = slot.worker_id,
            .advertise_host = advertise_host_,
            .threads = threads_,
            .certs = options_.security.certs,
            .token_file = options_.security.token_file,
            .insecure_network = options_.security.insecure_network,
            .card = slot.card ? slot.card->index : -1,
            .card_uuid = slot.card ? slot.card->uuid : "",
            .return_memory = returns_memory_,
            .augment_program = options_.augment_program,
            .shared_index = descriptor_of(index_),
            .shared_images = descriptor_of(images_),
            .sharers = options_.processes};
  }

  static int64_t descriptor_of(const std::unique_ptr<SharedFile>& file) {
    return file ? file->descriptor() : -1;
  }

  // The agent only holds the files, so that a worker's successor finds what
  // its peers have put into them. A worker alone needs none.
  void make_shared_files() {
    if (options_.processes == 1) return;
    index_ = SharedFile::make("headroom index");
    images_ = SharedFile::make("headroom images");
    if (index_ && images_) return;
    options_.print(cat(
        "warning: ", this_host_name(), ": the workers cannot share memory (",
        std::strerror(errno), "): each keeps its own index and images"));
  }

  // Gives the slots the cards that the coordinator has chosen.
  void place_workers(const std::vector<int64_t>& slot_cards) {
    for (size_t k = 0; k < std::min(slots_.size(), slot_cards.size()); ++k) {
      const auto card = std::ranges::find(cards_.cards, slot_cards[k],
                                          &wire::NodeCard::index);
      if (card != cards_.cards.end()) slots_[k].card = *card;
    }
  }

  // The cores near the worker's card; for a worker on the CPU, its share of the
  // cores.
  Cores cores_of(size_t k) const {
    const Cores allowed = allowed_cores();
    const int threads = static_cast<int>(threads_);
    if (slots_[k].card) {
      const auto near = cores_of_card_worker(
          cores_near_device(slots_[k].card->bus_address), allowed, threads);
      if (near) return *near;
    }
    return cores_of_worker(
        numa_nodes(), allowed, options_.first_local_rank + static_cast<int>(k),
        std::max(options_.local_workers, options_.processes), threads);
  }

  void start_worker(size_t k) {
    Slot& slot = slots_[k];
    ChildOptions child;
    child.name = "worker " + slot.worker_id;
    child.command = configs::words_of(start_of(slot));
    child.command.insert(child.command.begin(),
                         options_.worker_program.string());
    child.cores = cores_of(k);
    child.extra_environment = {
        {"OMP_NUM_THREADS", std::to_string(threads_)},
        {wire::kSecretVariable, client_->secret_of(slot.worker_id)}};
    if (!options_.interface.empty()) {
      // Without "=" NCCL treats the name as a prefix of interface names.
      child.extra_environment["NCCL_SOCKET_IFNAME"] = "=" + options_.interface;
      child.extra_environment["OMPI_MCA_btl_tcp_if_include"] =
          options_.interface;
    }
    // NCCL refuses two processes with one host id on one card.
    if (shares_devices_) {
      child.extra_environment["NCCL_HOSTID"] = slot.worker_id;
    }
    child.on_line = [this, process = child.name](const ChildLine& line) {
      log_->add(process, line);
      if (line.is_shown_at_once()) log::pass_on(*line.record);
    };
    child.death_signal = SIGUSR1;  // the worker saves its state, if it has one
    slot.reported = false;
    slot.killed_here = false;
    slot.host_memory.reset();
    try {
      auto [own, workers] = wire::BeatChannel::make_pair();
      child.extra_environment[wire::kBeatChannelVariable] =
          std::to_string(workers.fd());
      child.passed_fds = {workers.fd()};
      for (const auto* file : {&index_, &images_}) {
        if (*file) child.passed_fds.push_back((*file)->descriptor());
      }
      slot.process = std::make_unique<ChildProcess>(std::move(child));
      client_->speak_for(slot.worker_id, std::move(own));
    } catch (const Error& error) {
      slot.process.reset();
      slot.failure = error.what();
    }
  }

  void report_exits() {
    for (Slot& slot : slots_) {
      if (slot.reported || !slot.ended()) continue;
      const int exit_code = slot.process ? *slot.process->exit_code() : 127;
      if (!slot.host_memory) {
        const bool is_kill = exit_code == 128 + SIGKILL && !slot.killed_here;
        slot.host_memory = is_kill ? oom_kills_.explain_one(Clock::now()) : "";
        returns_memory_ |= !slot.host_memory->empty();
      }
      try {
        const wire::ReportExitResponse order = client_->report_exit(
            slot.worker_id, exit_code,
            slot.process ? slot.process->last_words() : slot.failure,
            *slot.host_memory);
        slot.reported = true;
        if (order.restart()) {
          slot.restart_at =
              Clock::now() + std::chrono::milliseconds(order.delay_ms());
        }
      } catch (const CommunicationError&) {
        // The report is retried at the next tick, until the silence limit.
        return;
      }
    }
  }

  // Starts the successors whose delay is over. A successor is a new worker,
  // whose name the coordinator must register before it connects.
  void start_successors() {
    for (size_t k = 0; k < slots_.size(); ++k) {
      Slot& slot = slots_[k];
      if (!slot.restart_at || Clock::now() < *slot.restart_at) continue;
      const std::string before = slot.worker_id;
      slot.worker_id = cat(node_id_, "-", k, ".", slot.successors + 1);
      try {
        client_->register_successors(registration());
      } catch (const CommunicationError&) {
        slot.worker_id = before;
        return;  // retried at the next tick
      }
      ++slot.successors;
      slot.restart_at.reset();
      start_worker(k);
    }
  }

  bool all_ended() const {
    return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
      return slot.ended() && !slot.restart_at;
    });
  }

  // Whether the coordinator has accepted the report of every worker's exit.
  bool all_reported() const {
    return std::all_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.reported; });
  }

  void signal_workers(int signal) {
    for (Slot& slot : slots_) {
      if (slot.process) slot.process->send(signal);
      slot.killed_here |= signal == SIGKILL;
    }
  }

  void kill_lost(const std::vector<std::string>& lost) {
    for (Slot& slot : slots_) {
      if (slot.process &&
          std::find(lost.begin(), lost.end(), slot.worker_id) != lost.end()) {
        slot.process->send(SIGKILL);
        slot.killed_here = true;
      }
    }
  }

  // Returns false if the agent must end at once without waiting for the run. If
  // the coordinator does not answer, `is_forsaken_` is set and the workers are
  // asked directly to save and leave.
  bool answer_interrupts() {
    const int count = options_.interrupts();
    if (count == 0 || count == answered_interrupts_) return true;
    answered_interrupts_ = count;
    if (count > 1) return false;
    try {
      client_->drain_node("the agent on " + this_host_name() +
                          " was asked to stop");
      options_.print("leaving the run at the next committed step");
    } catch (const CommunicationError&) {
      is_forsaken_ = true;
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  // Passes a notice on to the coordinator. While the coordinator does not
  // answer, tries again every 5 s; a notice arrives early enough for several
  // tries. Never blocks the loop that watches the workers.
  void answer_notice() {
    if (!options_.notice || is_leaving() || Clock::now() < next_notice_) return;
    next_notice_ = Clock::now() + std::chrono::seconds(5);
    const std::string reason = options_.notice();
    if (reason.empty()) return;
    if (!has_shown_notice_) {
      options_.print(reason + ": leaving the run at the next committed step");
    }
    has_shown_notice_ = true;
    try {
      options_.has_coordinator ? client_->drain(reason)
                               : client_->drain_node(reason);
      is_taken_away_ = true;
    } catch (const Error& error) {
      log::debug("after a " + reason + ": " + error.what());
    }
  }

  bool is_leaving() const { return answered_interrupts_ > 0 || is_taken_away_; }

  // Asks the workers to save the newest committed step (if they are training)
  // and to end. Kills those that take longer than kTimeToSave. Returns nullopt
  // while they are still saving.
  std::optional<RunExit> leave_the_silent(const std::string& refusal) {
    const std::string limit = cat(options_.silence_timeout.count(), " s");
    const std::string silence =
        "the coordinator at " + options_.coordinator +
        (is_forsaken_ ? " is gone"
         : refusal.empty()
             ? " was silent for " + limit
             : " has refused this agent for " + limit + " (" + refusal + ")");
    if (!asked_to_save_) {
      asked_to_save_ = Clock::now();
      signal_workers(SIGUSR1);
      options_.print(silence +
                     ": its workers are asked to save the newest committed "
                     "step, and leave");
    }
    if (!all_ended() && Clock::now() - *asked_to_save_ < kTimeToSave) {
      return std::nullopt;
    }
    signal_workers(SIGKILL);
    // Without a shared folder, each machine has what its own workers saved.
    const std::string where =
        is_elsewhere(run_directory_, client_->node_orders().folder)
            ? " on " + this_host_name()
            : "";
    return RunExit{5,
                   "[agent] " + silence + ": " + saved_state(run_directory_) +
                       where + how_to_go_on(),
                   true};
  }

  // Only the first agent of a machine says it; the program beside a supervised
  // agent says it itself.
  std::string place_of_results(const FolderPlace& place) const {
    if (options_.has_coordinator || options_.first_local_rank > 0) return "";
    if (place.hostname == this_host_name())
      return "results in " + run_directory_;
    return tell_elsewhere(run_directory_, place);
  }

  // "" if there is no checkpoint to continue from.
  std::string how_to_go_on() const {
    if (records::checkpoints_in(run_directory_).empty()) return "";
    return "; continue with: headroom train --resume " +
           shell_word(run_directory_);
  }

  RunExit watch() {
    Clock::time_point over_since = Clock::time_point::max();
    while (true) {
      oom_kills_.watch(Clock::now());
      const coordinator::NodeOrders orders = client_->node_orders();
      // After the end of the run the coordinator may already be gone.
      if (!orders.run_over) report_exits();
      kill_lost(orders.lost_worker_ids);
      if (!orders.run_over) {
        start_successors();
      } else {
        for (Slot& slot : slots_) slot.restart_at.reset();
      }
      if (!orders.run_over && is_leaving() && all_ended() && all_reported() &&
          !orders.stop_requested) {
        return {options_.exit_code_of_leaver,
                "[agent] its workers have left the run", true};
      }
      if (orders.run_over && all_ended()) {
        return {.exit_code = orders.exit_code,
                .reason = orders.reason,
                .place = place_of_results(orders.folder)};
      }
      const Clock::time_point now = Clock::now();
      if (orders.run_over) over_since = std::min(over_since, now);
      const auto grace =
          orders.exit_code == 0 ? options_.grace_after_success : options_.grace;
      if (orders.run_over && now - over_since > grace) {
        signal_workers(SIGKILL);
      }
      if (!answer_interrupts()) {
        signal_workers(SIGKILL);
        return {130, "[agent] stopped at once", true};
      }
      answer_notice();
      if (!is_forsaken_ &&
          orders.silence_seconds <=
              static_cast<double>(options_.silence_timeout.count())) {
        asked_to_save_.reset();
      } else if (auto end = leave_the_silent(orders.refusal)) {
        return *end;
      }
      std::this_thread::sleep_for(kTick);
    }
  }

  const AgentOptions& options_;
  const std::string node_id_;
  const std::string advertise_host_;  // the address of this agent's workers
  std::unique_ptr<coordinator::ControlClient> client_;
  std::unique_ptr<LineLog> log_;  // must outlive the workers, which write to it
  std::string run_directory_;
  NodeCards cards_;
  std::vector<Slot> slots_;
  // The workers' SharedFiles; nullptr for a worker alone.
  std::unique_ptr<SharedFile> index_, images_;
  OomKills oom_kills_;
  // Stays true after the kernel has killed a worker because memory ran out.
  bool returns_memory_ = false;
  int64_t threads_ = 1;
  bool shares_devices_ = false;
  int answered_interrupts_ = 0;
  Clock::time_point next_notice_{};  // earliest time to look for a notice again
  bool has_shown_notice_ = false;
  bool is_taken_away_ = false;  // the coordinator accepted the notice
  bool is_forsaken_ = false;    // a request to stop got no answer
  // When the workers were asked to save because the coordinator is silent.
  std::optional<Clock::time_point> asked_to_save_;
};

}  // namespace

std::vector<std::string> SecurityFiles::flags() const {
  std::vector<std::string> words;
  if (!certs.empty()) words.insert(words.end(), {"--certs", certs});
  if (!token_file.empty()) {
    words.insert(words.end(), {"--token-file", token_file});
  }
  if (insecure_network) words.emplace_back("--insecure-network");
  return words;
}

std::filesystem::path find_worker_program() {
  const std::filesystem::path program = program_folder() / "headroom-worker";
  if (access(program.c_str(), X_OK) != 0) {
    throw Error("launch", "there is no program " + program.string(),
                "build it (cmake --build build --target headroom-worker); it "
                "belongs beside headroom");
  }
  return program;
}

RunExit run_agent(const AgentOptions& options) { return Agent(options).run(); }

}  // namespace headroom::cli
