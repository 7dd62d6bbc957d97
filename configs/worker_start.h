// How headroom-worker is started, beside the commands that it carries out for
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
  std::string advertise_host;  // the address at which others reach it
  int64_t threads = 1;         // threads that compute
  std::string certs = {};
  std::string token_file = {};
  bool insecure_network = false;
  int64_t card = -1;           // its card's number; -1: as the local rank says
  std::string card_uuid = {};  // the card that had this number; "": not known
};

// headroom-worker --standalone RUN.YAML FLAGS: a run by this one process
// (worker/run/standalone.h).
struct StandaloneRequest {
  std::filesystem::path run_yaml;
  // "": the one beside run_yaml; without one, a plan is chosen.
  std::filesystem::path plan_json;
  std::filesystem::path run_directory;  // the folder of a new run
  // Goes on with the run whose directory holds run_yaml.
  bool resume = false;
};

// What follows the program's name.
inline constexpr char kStandaloneFlag[] = "--standalone";
// headroom-worker devices: one line of JSON about the devices that its plugin
// shows (worker/tools/device_query.h).
inline constexpr char kDevicesCommand[] = "devices";
// headroom-worker answer FD KEY...: what a launcher wants to know of the data
// set before it starts the run whose run.yaml is behind the file descriptor FD
// (worker/tools/dataset_query.h). The keys are those of the run that the answer
// fills in.
inline constexpr char kAnswerCommand[] = "answer";

// The options of each request, bound to its fields.
std::vector<Option> options_of(WorkerStart& start);
std::vector<Option> options_of(StandaloneRequest& request);

// The words behind the program's name that start such a worker.
std::vector<std::string> words_of(WorkerStart start);

}  // namespace headroom::configs
