// MlflowRun: shows a run in MLflow, through the server's REST interface.
//
//   parameters   the settings of run.yaml, once; a server may refuse some
//   metrics      the columns of results.csv, step = epoch, as they appear
//   tags         generation, lost processes, out-of-memory retries, the end
//   artifacts    results.png and best.safetensors, if the server stores
//                artifacts itself (mlflow-artifacts:)
//   state        RUNNING, then FINISHED, FAILED or KILLED
//
// mlflow.json in the run directory stores the MLflow run's id and what has
// arrived, so that a resumed run continues it. A message whose answer was lost
// is sent again with the same times, which the server treats as the same
// message. If the answer to the creation of a run was lost, the run is searched
// by a unique tag.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deploy/notify/courier.h"
#include "deploy/notify/web_client.h"
#include "deploy/records/run_lines.h"

namespace headroom::notify {

class MlflowRun : public Delivery {
 public:
  struct Subject {
    WebAddress address;
    std::string authorization;
    std::string experiment;
    std::filesystem::path run_directory;
    std::string run_name;
    bool goes_on = false;  // resumes the run of the directory
  };
  explicit MlflowRun(Subject subject);

  std::vector<std::string> advance(const RunEnd* end,
                                   std::chrono::milliseconds limit) override;
  std::string left(const RunEnd* end) const override;
  void cut() override { client_.cut(); }
  void stop() override { client_.stop(); }

 private:
  // The content of mlflow.json.
  struct Record {
    std::string server, experiment;
    std::string experiment_id, run_id, artifacts;
    std::string mark;         // a unique tag of this run
    int64_t epochs = 0;       // lines of results.csv that have arrived
    bool parameters = false;  // they have arrived, or were refused
    int64_t first_event = 0;  // where the run begins in events.jsonl
  };
  // A file, and its state when it was last sent.
  struct Artifact {
    std::filesystem::path file;
    std::optional<std::filesystem::file_time_type> sent;
    std::chrono::steady_clock::time_point when{};
  };

  bool is_begun();
  void read_record();
  void write_record() const;
  void read_run();
  void open();
  std::string find_experiment();
  void make_run();
  bool find_made_run();
  void take_run(const std::string& answer);
  void forget_run();
  void send_parameters();
  void send_epochs(const RunEnd* end);
  void send_tags(const RunEnd* end);
  void send_state(const RunEnd* end);
  void send_artifact(Artifact& artifact, bool is_end);
  // Whether there is a version of it that has not been sent.
  bool is_due(const Artifact& artifact) const;
  void log_batch(const std::string& body);
  // Returns the answer's body, a JSON object. Throws Undelivered.
  std::string call(const std::string& method, const std::string& path,
                   const std::string& body);
  void say(const std::string& line) { lines_.push_back(line); }

  const Subject subject_;
  WebClient client_;
  std::chrono::milliseconds limit_{};
  std::optional<std::filesystem::file_time_type> older_run_;
  Record record_;
  bool is_open_ = false;
  bool may_be_made_ = false;  // no answer to the request for a run
  bool is_begun_ = false;
  std::optional<records::EventReader> events_;
  records::ResultsTable results_;
  // The file's time and size when it was last read.
  std::pair<std::optional<std::filesystem::file_time_type>, uintmax_t>
      read_results_;
  std::vector<std::string> arrived_;  // the lines that the server has
  std::map<int64_t, int64_t> times_;  // when each epoch ended, in milliseconds
  std::map<std::string, int64_t> line_times_;  // of the lines that were sent
  int waits_for_event_ = 0;
  std::map<std::string, std::string> tags_, sent_tags_;
  int64_t losses_ = 0, retries_ = 0;
  bool has_state_ = false;  // the final state has arrived
  Artifact picture_, weights_;
  bool takes_artifacts_ = true;
  std::vector<std::string> lines_;
};

}  // namespace headroom::notify
