// EventRecord: what happened in a run; EventFile: all of a run's
// events, in its directory, a line each.
//
// A run has one writer of events.jsonl: the coordinator, or the worker where
// there is none. Events that happen before the run directory exists are kept
// and written when it appears.
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
  int64_t sequence = 0;  // rises by one from 1; set by its writer
  EventKind event{};
  int64_t step = 0;
  int rank = -1;            // -1: not one rank's
  std::string reason = {};  // one line for people
  // An object with further fields; "" for none. That of kRunOver holds
  // "exit_code" and "state".
  std::string detail_json = {};
  bool warning = false;
  std::string time = {};  // UTC, "2026-11-21T08:23:00.123Z"; set by its writer
  // The reporting worker's count of its own reports, from 1.
  int64_t report = 0;
  std::string reporter = {};  // its worker_id; not in the file
  bool ends_run = false;  // the run's last event says the same; not in the file
};

// A line of events.jsonl without its line feed. Members of detail_json stand
// beside the fixed ones, which they cannot replace; what is no object becomes
// "detail".
std::string to_json_line(const EventRecord& record);

class EventFile {
 public:
  // `run_directory` may be "": nothing is ever written.
  explicit EventFile(std::string run_directory)
      : run_directory_(std::move(run_directory)),
        file_(std::filesystem::path(run_directory_) / run_files::kEvents) {}

  void add(const std::vector<std::string>& lines);
  // Those of the lines, oldest first, that the file has not: it ends with one
  // of them, or with none. A torn last line is cut off it.
  void add_unwritten(std::vector<std::string> lines);
  // Appends what is pending, if the folder exists. Where it cannot be written
  // it waits, which is logged once, for the next time.
  void write();

 private:
  std::string run_directory_;
  LineFile file_;
  bool is_failing_ = false;
};

}  // namespace headroom::wire
