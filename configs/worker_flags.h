// How headroom-worker is started, beside the commands that it carries out for
// headroom (command_flags.h). Each flag is declared once, with the field of a
// request that it sets: the program reads its arguments by the declarations,
// whoever starts it has the words from them, and the reference lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

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

// Which anchors fit the boxes of a data set.
struct AnchorQuery {
  std::string model = {};  // --cfg, or what the weights say they hold
  std::string weights =
      {};  // the file whose anchors are judged; "": the model's
  int64_t image_height = 640;
  int64_t image_width = 640;
  bool random_crop = false;  // larger images are cut, not shrunk
  double threshold = 4;      // hyp.anchor_t
  double per_level = 0;      // hyp.anchors
  bool keep = false;         // judge nothing (--noautoanchor)
  uint64_t seed = 0;
};

// headroom-worker answer DATA.YAML FLAGS: what a launcher wants to know of a
// data set before it starts a run (worker/tools/dataset_query.h).
struct DatasetQuery {
  std::string data;  // data.yaml
  bool single_cls = false;
  int64_t threads = 8;
  bool label_counts = false;
  bool value_range = false;
  bool noindex = false;
  AnchorQuery anchors = {};  // asked for where a model is named

  bool wants_anchors() const { return !anchors.model.empty(); }
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
inline constexpr char kAnswerCommand[] = "answer";
inline constexpr char kStandaloneFlag[] = "--standalone";
// headroom-worker devices: one line of JSON about the devices that its plugin
// shows (worker/tools/device_query.h).
inline constexpr char kDevicesCommand[] = "devices";

struct WorkerFlag {
  std::string spelling;    // "" for a word that stands without a flag
  std::string value_name;  // "" for a switch
  std::string description;
  // The field that it sets, which holds the default.
  std::variant<bool*, int64_t*, uint64_t*, double*, std::string*,
               std::filesystem::path*>
      value;
  bool is_required = false;
  std::string excludes = {};  // a flag that cannot stand beside it
};

// The flags of each request, bound to its fields.
std::vector<WorkerFlag> flags_of(WorkerStart& start);
std::vector<WorkerFlag> flags_of(DatasetQuery& query);
std::vector<WorkerFlag> flags_of(StandaloneRequest& request);

// The words behind the program's name that make it read the same request.
std::vector<std::string> words_of(const WorkerStart& start);
std::vector<std::string> words_of(const DatasetQuery& query);

// A flag's value as a word; "" for a switch.
std::string value_text(const WorkerFlag& flag);

}  // namespace headroom::configs
