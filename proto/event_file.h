// EventRecord: one event of a run. EventFile: writes events to events.jsonl in
// the run's directory, one per line.
//
// Each run has one writer of events.jsonl: the coordinator, or the worker if
// there is no coordinator. Events that happen before the run directory exists
// are kept, and written once it exists.
//
// Threads: none of their own; a file is used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"

namespace headroom::wire {

// One line of events.jsonl.
struct EventRecord {
  int64_t sequence = 0;  // counts from 1; set by the writer
  EventKind event{};
  int64_t step = 0;
  int rank = -1;            // -1 if the event does not concern a single rank
  std::string reason = {};  // one line for the user
  // A JSON object with more fields, or "". kRunOver: "exit_code" and "state".
  std::string detail_json = {};
  bool warning = false;
  std::string time = {};  // UTC, "2026-11-21T08:23:00.123Z"; set by the writer
  // Number of this report, counted from 1 by the worker that sends it.
  int64_t report = 0;
  std::string reporter = {};  // worker_id of that worker; not in the file
  bool ends_run = false;      // kRunOver repeats this reason; not in the file
};

// A line of events.jsonl without its line feed. The members of detail_json
// become members of the line, but never replace its fixed members. A detail
// that is not a JSON object is stored as "detail".
std::string to_json_line(const EventRecord& record);

class EventFile {
 public:
  // If `run_directory` is empty, the object never writes a file.
  explicit EventFile(std::string run_directory)
      : run_directory_(std::move(run_directory)),
        file_(std::filesystem::path(run_directory_) / run_files::kEvents) {}

  void add(const std::vector<std::string>& lines);
  // Adds the lines that are not in the file yet. `lines` are oldest first: if
  // the file's last line is one of them, only the later ones are added. An
  // incomplete last line of the file is cut off first.
  void add_unwritten(std::vector<std::string> lines);
  // Makes the folder and appends pending lines, if rank 0 has written its files
  // on another machine, which does not share this folder.
  void write_alone();
  // Appends pending lines once the run has written to its directory. If the
  // file cannot be written, the lines stay pending for the next call; the
  // failure is logged once.
  void write();

 private:
  std::string run_directory_;
  LineFile file_;
  bool is_failing_ = false;
};

}  // namespace headroom::wire
