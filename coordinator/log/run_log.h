// RunLog: a run's decisions in a write-ahead log. If the coordinator is killed,
// its successor continues from the log.
//
//   snapshot   appended whenever membership, generation, phase or an order
//              changes; synced before any reply that depends on it
//   progress, event, key
//              appended at once, synced by the next tick: kill -9 loses none
//              of them, a power failure at most those of the last tick
//
// The log is bounded: when most of it is outdated, one snapshot and the records
// that are still needed replace it.
//
// Threads: none of its own. The service holds its mutex during all calls except
// sync(), which the tick thread calls without it. Only the tick thread calls
// compact().
// Errors: those of WriteAheadLog.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/log/write_ahead_log.h"
#include "proto/coordinator_log.pb.h"

namespace headroom::coordinator {

// The content of a log.
struct LoggedRun {
  wire::LogSnapshot snapshot;
  std::optional<wire::Progress> progress;
  std::vector<wire::Event> events;  // oldest first
  // The rendezvous keys of the snapshot's generation.
  std::map<std::string, std::string> keys;
};

class RunLog {
 public:
  // The log is compacted above this size. With a larger value the log is
  // rewritten less often, but a restarted coordinator reads more.
  static constexpr int64_t kCompactBytes = 4 << 20;

  static std::unique_ptr<RunLog> open(const std::filesystem::path& file);

  // The content that open() read; no value if the log is new.
  const std::optional<LoggedRun>& found() const { return found_; }

  // Describes what open() cut off at the end of the log, as a sentence without
  // a full stop; "" if nothing was cut.
  const std::string& torn_end() const { return torn_end_; }

  // Appends the snapshot if it differs from the previous one. The snapshot is
  // durable after sync().
  void save(wire::LogSnapshot&& snapshot);
  // Appends any other record.
  void add(const wire::LogRecord& record);
  void sync();

  bool leads_here() const { return log_->leads_here(); }
  bool wants_compaction() const;
  void compact(const LoggedRun& run);

  // Empties the log after a failed write, so that no successor uses it.
  void give_up() noexcept { log_->clear(); }

 private:
  RunLog() = default;
  void append(const std::string& record);

  std::unique_ptr<WriteAheadLog> log_;
  std::optional<LoggedRun> found_;
  std::string torn_end_;
  std::string newest_snapshot_;  // the newest snapshot, as a serialised record
  std::atomic<bool> unsynced_ = false;
  int64_t compacted_bytes_ = 0;
};

}  // namespace headroom::coordinator
