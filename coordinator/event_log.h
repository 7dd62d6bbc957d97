// EventLog: the newest events of the run, numbered; EventFile: all of them, in
// the run directory.
//
// The coordinator is the only writer of events.jsonl. Events that happen before
// the run directory exists are kept and written when it appears.
//
// Threads: none of their own. The log is guarded by the service; the file is
// used by the tick thread alone, so that a slow disk delays nobody's answer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "coordinator/run_status.h"

namespace headroom {

class EventLog {
 public:
  static constexpr size_t kMaxEvents = 1000;
  static constexpr size_t kMaxBytes = 16 << 20;

  // Numbers the event, stamps it with `time` and drops the oldest beyond the
  // bounds. Returns it as kept.
  const EventRecord& append(EventRecord record, const std::string& time);

  // The oldest kept event after `sequence`; null if there is none.
  const EventRecord* next_after(int64_t sequence) const;

  // The newest `count`, oldest first.
  std::vector<EventRecord> newest(size_t count) const;

 private:
  std::deque<EventRecord> events_;
  size_t bytes_ = 0;
  int64_t last_sequence_ = 0;
};

// One line without its line feed. Members of detail_json stand beside the fixed
// ones, which they cannot replace; what is no object becomes "detail".
std::string to_json_line(const EventRecord& record);

// Now, in UTC: "2026-11-21T08:23:00.123Z".
std::string utc_now();

class EventFile {
 public:
  // `run_directory` may be "": nothing is ever written.
  explicit EventFile(std::string run_directory)
      : run_directory_(std::move(run_directory)) {}

  void add(std::vector<std::string> lines);
  // Appends what is pending, if the folder exists. The first failure is logged
  // and ends the writing: the run goes on without.
  void write();

 private:
  std::string run_directory_;
  std::vector<std::string> pending_;
  bool failed_ = false;
};

}  // namespace headroom
