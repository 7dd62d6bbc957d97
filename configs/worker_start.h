// The command lines of headroom-worker, except the commands that it runs for
// headroom (worker/tools/tool_command.h). Each option is declared with the
// field that it sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/options.h"

namespace headroom::configs {

// headroom-worker FLAGS: drives one device for a coordinator. Agents start it.
struct WorkerStart {
  std::string coordinator;  // HOST:PORT
  std::string node_id;
  std::string worker_id;
  std::string advertise_host;  // the address to which its peers connect
  int64_t threads = 1;         // compute threads
  std::string certs = {};
  std::string token_file = {};
  bool insecure_network = false;
  int64_t card = -1;           // the card's number; -1 means by local rank
  std::string card_uuid = {};  // the card's UUID; "" if unknown
  bool return_memory = false;  // freed memory goes back to the system at once
  std::string augment_program = {};
  // The agent's SharedFiles (parallel/machine/shared_file.h).
  int64_t shared_index = -1, shared_images = -1;
  int64_t sharers = 1;
};

// headroom-worker --standalone RUN.YAML FLAGS: a run by this one process
// (worker/run/standalone.h).
struct StandaloneRequest {
  std::filesystem::path run_yaml;
  // "" means the plan.json beside run_yaml; if there is none, a plan is chosen.
  std::filesystem::path plan_json;
  std::filesystem::path run_directory;  // the folder of a new run
  // Resume the run in whose directory run_yaml is.
  bool resume = false;
  std::string augment_program = {};
};

// The first word after the program's name.
inline constexpr char kStandaloneFlag[] = "--standalone";
// headroom-worker devices: one line of JSON about the devices that its plugin
// shows (worker/tools/device_query.h).
inline constexpr char kDevicesCommand[] = "devices";
// headroom-worker answer FD KEY...: answers a launcher's questions about the
// data set before the run starts (worker/tools/dataset_query.h). The file
// descriptor FD has the run's run.yaml; KEY... are the keys to fill in.
inline constexpr char kAnswerCommand[] = "answer";

// The command-line options that set the fields of the request.
std::vector<Option> options_of(WorkerStart& start);
std::vector<Option> options_of(StandaloneRequest& request);

// The command-line words that start such a worker.
std::vector<std::string> words_of(WorkerStart start);

}  // namespace headroom::configs
