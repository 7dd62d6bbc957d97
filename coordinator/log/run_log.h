// RunLog: a run's decisions in a write-ahead log, so that a coordinator that is
// killed has a successor that goes on where it was.
//
//   snapshot   whenever membership, generation, phase, or what somebody was
//              told changes: synced before anybody hears of the change
//   progress, event, key
//              appended at once, synced by the next tick: kill -9 loses none
//              of them, a power failure at most the last tick's
//
// The log is bounded: once most of it is history it is replaced by a snapshot
// and what is kept beside it.
//
// Threads: none of its own. The service calls everything with its mutex held,
// but for sync(), which the tick thread calls without it; the tick thread alone
// calls compact().
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

// What a log holds.
struct LoggedRun {
  wire::LogSnapshot snapshot;
  std::optional<wire::Progress> progress;
  std::vector<wire::Event> events;  // oldest first
  // The rendezvous keys of the snapshot's generation.
  std::map<std::string, std::string> keys;
};

class RunLog {
 public:
  static constexpr int64_t kCompactBytes = 4 << 20;

  static std::unique_ptr<RunLog> open(const std::filesystem::path& file);

  // Nothing: the log is new.
  const std::optional<LoggedRun>& found() const { return found_; }

  // What open() dropped at the log's end, as a sentence without its full stop;
  // "" for nothing.
  const std::string& torn_end() const { return torn_end_; }

  // Appended if it differs from the one before; sync() makes it last.
  void save(wire::LogSnapshot&& snapshot);
  void add(const wire::Progress& progress);
  void add(const wire::Event& event);
  void add(const wire::LoggedKey& key);
  void sync();

  bool leads_here() const { return log_->leads_here(); }
  bool wants_compaction() const;
  void compact(const LoggedRun& run);

  // It could not be written: what it says must not be believed any more.
  void give_up() noexcept { log_->clear(); }

 private:
  RunLog() = default;
  void append(const std::string& record);

  std::unique_ptr<WriteAheadLog> log_;
  std::optional<LoggedRun> found_;
  std::string torn_end_;
  std::string newest_snapshot_;  // its record, serialised
  std::atomic<bool> unsynced_ = false;
  int64_t compacted_bytes_ = 0;
};

}  // namespace headroom::coordinator
