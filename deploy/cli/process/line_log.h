// LineLog: writes the output of a run's processes as JSON lines into the run's
// folder. The oldest file is deleted when there are too many.
//
//   RUN/logs/coordinator.jsonl, then coordinator.1.jsonl, … (older)
//   {"time": "2026-11-22T01:02:03.456Z", "process": "worker host-7-0",
//    "level": "warning", "message": "[gen 2 rank 1/2] 2 images were skipped"}
//
// A line that is not a record of our log (from a library or a crash) has the
// level "output". Until the run has begun to write to its folder, a bounded
// number of lines is kept in memory. On a machine that does not share the
// folder nothing is ever written. Links in the folder are not followed: it may
// be another user's.
//
// Threads: any thread may call add().
// Errors: none. A line that cannot be written is dropped; a run must not fail
// because of its log.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>

#include "deploy/cli/process/child_output.h"

namespace headroom::cli {

struct LineLogLimits {
  int64_t file_bytes = 8 << 20;
  int files = 4;  // the current one included
  size_t waiting_lines = 1000;
};

class LineLog {
 public:
  // The run may not have begun to write to `run_directory` yet. Only one
  // process at a time writes to NAME.jsonl; a second process with the same name
  // writes to NAME-2.jsonl.
  LineLog(std::filesystem::path run_directory, std::string name,
          const LineLogLimits& limits = {});
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  void add(const std::string& process, const ChildLine& line);

 private:
  bool open();
  void write(const std::string& record);
  void rotate();
  void open_file(int flags);
  std::filesystem::path file(int age) const;

  const std::filesystem::path run_directory_;
  std::string name_;
  const LineLogLimits limits_;
  std::mutex mutex_;
  std::deque<std::string> waiting_;  // JSON lines for the file
  int out_ = -1;
  int64_t written_bytes_ = 0;
  int lock_ = -1;
  bool gave_up_ = false;
};

}  // namespace headroom::cli
