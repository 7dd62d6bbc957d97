// MlflowRun: a run as MLflow shows it, by the server's REST interface.
//
//   parameters   the settings of run.yaml, once; a server may refuse some
//   metrics      the figures of results.csv, step = epoch, as they appear
//   tags         generation, lost processes, out-of-memory retries, the end
//   artifacts    results.png and best.safetensors, where the server keeps
//                artifacts itself (mlflow-artifacts:)
//   state        RUNNING, then FINISHED, FAILED or KILLED
//
// mlflow.json in the run directory says which MLflow run this is and what has
// arrived, so that a resumed run goes on there. What may have arrived although
// its answer was lost has the same times when it is sent again, which the
// server takes for the same; a run that may have been made is looked for by a
// mark of its own.
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
  // mlflow.json.
  struct Record {
    std::string server, experiment;
    std::string experiment_id, run_id, artifacts;
    std::string mark;         // a tag that no other run has
    int64_t epochs = 0;       // lines of results.csv that have arrived
    bool parameters = false;  // they have arrived, or were refused
    int64_t first_event = 0;  // the run's begin in events.jsonl
  };
  // What of a file was sent.
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
  // Whether there is one that has not been sent.
  bool is_due(const Artifact& artifact) const;
  void log_batch(const std::string& body);
  // The answer's body, a JSON object. Throws Undelivered.
  std::string call(const std::string& method, const std::string& path,
                   const std::string& body);
  void say(const std::string& line) { lines_.push_back(line); }

  const Subject subject_;
  WebClient client_;
  std::chrono::milliseconds limit_{};
  std::optional<std::filesystem::file_time_type> older_run_;
  Record record_;
  bool is_open_ = false;
  bool may_be_made_ = false;  // a request to make the run had no answer
  bool is_begun_ = false;
  std::optional<records::EventReader> events_;
  records::ResultsTable results_;
  // The file's time and size when it was read.
  std::pair<std::optional<std::filesystem::file_time_type>, uintmax_t>
      read_results_;
  std::vector<std::string> arrived_;  // those lines that the server has
  std::map<int64_t, int64_t> times_;  // an epoch's end, in milliseconds
  std::map<std::string, int64_t> line_times_;  // lines that were sent
  int waits_for_event_ = 0;
  std::map<std::string, std::string> tags_, sent_tags_;
  int64_t losses_ = 0, retries_ = 0;
  bool has_state_ = false;  // the end's state has arrived
  Artifact picture_, weights_;
  bool takes_artifacts_ = true;
  std::vector<std::string> lines_;
};

}  // namespace headroom::notify
