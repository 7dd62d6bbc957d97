// A worker without tensors, for tests of programs that start workers. It joins
// the coordinator as the real worker does, and then behaves as the environment
// variable FAKE_WORKER says:
//
// - "": trains 3 epochs of 4 steps, with a validation, a warning and results;
// - slow: commits a step at once and one each half second, until it is asked to
//   stop, then ends with 130;
// - talk: as slow, after 200 long events;
// - die: ends before it joins, with a last line of output;
// - refuse: reports that the data is bad;
// - crash: rank 1 is killed in mid-run, after a line of output; rank 0 saves;
// - late: as "", but needs 7 s to leave, and then writes the file "left";
// - stubborn: commits a step, then ignores every request to end;
// - idle: as stubborn, but without a step;
// - hesitate: the first process never joins or answers; the later ones do as
// "";
// - host: as "", and prints its host for NCCL;
// - told: as "", and prints its device flags;
// - share: as slow, and counts in the files that the agent's workers share.
// If HEADROOM_DEVICE_PLUGIN is set, a query for devices returns FAKE_DEVICES
// devices with the compute capability FAKE_CAPABILITY.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "parallel/base/log.h"
#include "parallel/machine/shared_file.h"
#include "proto/channel_security.h"
#include "proto/refusal_channel.h"
#include "worker/control/coordinator_client.h"

namespace {

using headroom::control::Assignment;
using headroom::control::CoordinatorClient;
using headroom::wire::RunProgress;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

RunProgress progress_after(int64_t step) {
  RunProgress progress;
  progress.step = step;
  progress.num_steps = 12;
  progress.epoch = (step - 1) / 4;
  progress.num_epochs = 3;
  progress.step_in_epoch = (step - 1) % 4 + 1;
  progress.steps_per_epoch = 4;
  progress.images_per_second = 50;
  progress.phase = headroom::wire::WorkerPhase::kTrain;
  return progress;
}

void train(CoordinatorClient& client, const Assignment& assignment) {
  for (int64_t step = 1; step <= 12; ++step) {
    pause();
    client.set_progress(progress_after(step));
    if (assignment.rank != 0) continue;
    client.commit(step - 1, 0.5, progress_after(step));
    if (step % 4 == 0) {
      client.report_event(
          {.event = headroom::EventKind::kEpoch,
           .step = step,
           .rank = 0,
           .reason = "trained epoch " + std::to_string(step / 4)});
    }
  }
  if (assignment.rank != 0) return;
  client.report_event({.event = headroom::EventKind::kData,
                       .step = 12,
                       .rank = -1,
                       .reason = "2 images were skipped",
                       .warning = true});
  client.report_event({.event = headroom::EventKind::kValidation,
                       .step = 12,
                       .rank = 0,
                       .reason = "validated",
                       .detail_json =
                           R"({"epoch": 2, "precision": 0.5, "recall": 0.25,)"
                           R"( "map50": 0.75, "map": 0.125})"});
  client.finish({.exit_code = 0,
                 .reason = "all 12 steps done",
                 .result_json = R"({"map50": 0.75, "map": 0.125})",
                 .step = 12});
}

void train_until_stopped(CoordinatorClient& client,
                         const Assignment& assignment) {
  constexpr int kPausesPerStep = 25;
  for (int pauses = 0; !client.stop_requested(); ++pauses) {
    const int64_t step = std::min(pauses / kPausesPerStep + 1, 11);
    client.set_progress(progress_after(step));
    if (assignment.rank == 0 && pauses == (step - 1) * kPausesPerStep) {
      client.commit(step - 1, 0.5, progress_after(step));
      if (step == 1) headroom::log::warn("rank 0 has committed a step");
    }
    pause();
  }
  if (assignment.rank != 0) return;
  client.finish({.exit_code = 130,
                 .reason = "interrupted after step 3; go on with --resume",
                 .result_json = "{}",
                 .step = 3,
                 .says_how_to_go_on = true});
}

// The value of a line "key: value"; "" if there is no such line.
std::string value_of(const std::string& yaml, const std::string& key) {
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + ": ")) continue;
    std::string value = line.substr(key.size() + 2);
    std::erase(value, '"');
    return value;
  }
  return "";
}

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Says how many workers have used the shared files, this one included.
void count_users(std::map<std::string, std::string>& flags) {
  std::string text;
  for (const char* const flag : {"--shared-index", "--shared-images"}) {
    const auto file =
        headroom::SharedFile::open(std::atoi(flags[flag].c_str()));
    const headroom::SharedFile::Lock lock(*file);
    file->write(file->size(), "x", 1);
    text += " " + std::to_string(file->size());
  }
  headroom::log::warn("shares as user" + text + " with " + flags["--sharers"]);
}

// Prints the devices as `headroom-worker devices` does.
int show_devices() {
  std::string list;
  const int count = number_of("FAKE_DEVICES", 0);
  for (int i = 0; i < count; ++i) {
    list += (i == 0 ? "" : ", ") + std::string("{\"index\": ") +
            std::to_string(i) + ", \"uuid\": \"GPU-" + std::to_string(i) +
            "\", \"name\": \"Fake H100\", \"compute_capability\": " +
            std::to_string(number_of("FAKE_CAPABILITY", 90)) +
            ", \"total_bytes\": 1}";
  }
  std::printf("{\"devices\": [%s], \"reason\": \"%s\"}\n", list.c_str(),
              count == 0 ? "the pretender shows none" : "");
  return 0;
}

int behave(CoordinatorClient& client, const std::string& behaviour,
           const std::string& card) {
  for (;;) {
    const Assignment assignment = client.next_assignment();
    if (assignment.action == headroom::control::Action::kExit) {
      if (behaviour == "late") {
        std::this_thread::sleep_for(std::chrono::seconds(7));
        std::ofstream("left") << "by itself";
      }
      return 0;
    }
    if (assignment.action == headroom::control::Action::kSaveAndExit) {
      client.finish({.exit_code = 5,
                     .reason = "stopped after step 2; go on with --resume",
                     .result_json = "{}",
                     .step = 2,
                     .says_how_to_go_on = true});
      continue;
    }
    headroom::log::warn("rank " + std::to_string(assignment.rank) + " of " +
                        std::to_string(assignment.world_size) + ", threads " +
                        std::getenv("OMP_NUM_THREADS"));
    if (behaviour == "host") {
      const char* const host = std::getenv("NCCL_HOSTID");
      headroom::log::warn("rank " + std::to_string(assignment.rank) +
                          " is host '" + (host == nullptr ? "" : host) + "'");
    }
    if (behaviour == "told") {
      headroom::log::warn(
          "rank " + std::to_string(assignment.rank) + " was told device " +
          value_of(assignment.run_config_yaml, "device") + ", precision " +
          value_of(assignment.run_config_yaml, "precision") + ", backend " +
          to_string(assignment.plan.backend) + ", card " + card);
    }
    if (behaviour == "talk" && assignment.rank == 0) {
      for (int i = 0; i < 200; ++i) {
        client.report_event({.event = headroom::EventKind::kPicture,
                             .step = 0,
                             .rank = 0,
                             .reason = std::string(3500, 'x')});
      }
    }
    if (behaviour == "slow" || behaviour == "talk" || behaviour == "share") {
      train_until_stopped(client, assignment);
    } else if (behaviour == "refuse") {
      client.report_failure({4, "[data] nothing is left: give other images"});
      return 4;
    } else if (behaviour == "crash" && assignment.rank == 1) {
      std::fprintf(stderr, "the roof is on fire\n");
      raise(SIGKILL);
    } else if (behaviour == "crash") {
      client.report_failure({.exit_code = 5,
                             .message = "[communication] rank 1 is gone",
                             .kind = headroom::wire::FailureKind::kLostPeer,
                             .committed_steps = 2});
    } else if (behaviour == "idle") {
      for (;;) ::pause();
    } else if (behaviour == "stubborn") {
      if (assignment.rank == 0) client.commit(0, 0.5, progress_after(1));
      for (;;) ::pause();
    } else {
      train(client, assignment);
    }
  }
}

// Answers a query about the data set as headroom-worker does if the data set is
// unusable; with "hesitate" only the second query is answered.
int answer(const std::string& behaviour) {
  if (behaviour == "hesitate" && std::ifstream("hesitated")) {
    std::puts("{\"anchors\": \"\", \"anchors_reason\": \"kept\"}");
    return 0;
  }
  if (behaviour == "hesitate") std::ofstream("hesitated") << "once";
  if (behaviour == "refuse") {
    headroom::wire::open_refusal_channel();
    headroom::wire::tell_parent({"[odd] no labels", "data", "write some"});
    return 4;
  }
  std::fprintf(stderr, "the labels are on fire\n");
  raise(SIGKILL);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  headroom::log::follow_parent();
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const char* given = std::getenv("FAKE_WORKER");
  const std::string behaviour = given == nullptr ? "" : given;
  if (argc > 1 && std::string(argv[1]) == "answer") return answer(behaviour);
  if (argc > 1 && std::string(argv[1]) == "devices") return show_devices();
  if (behaviour == "die") {
    headroom::log::info("starting");
    std::fprintf(stderr, "no more strength\n");
    return 7;
  }
  if (behaviour == "hesitate" && !std::ifstream("hesitated")) {
    std::ofstream("hesitated") << "once";
    for (;;) ::pause();
  }
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  headroom::wire::set_channel_security(headroom::wire::read_channel_security(
      flags["--certs"], flags["--token-file"],
      headroom::wire::ChannelSide::kClient));
  const auto client = CoordinatorClient::connect(
      flags["--coordinator"],
      {flags["--node-id"], flags["--worker-id"],
       std::getenv(headroom::wire::kSecretVariable)},
      flags["--advertise-host"], headroom::control::kPatience,
      headroom::wire::BeatChannel::from_environment());
  if (behaviour == "share") count_users(flags);
  const bool has_card = flags.contains("--card");
  return behave(*client, behaviour,
                has_card ? flags["--card"] + " " + flags["--card-uuid"]
                         : "of its own choice");
}
