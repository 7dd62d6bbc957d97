#include "coordinator/log/run_log.h"

#include <algorithm>
#include <utility>

#include "coordinator/run/restart_policy.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {
namespace {

void take(std::optional<LoggedRun>& run, wire::LogRecord record,
          std::map<uint64_t, std::map<std::string, std::string>>& keys) {
  if (!run) run.emplace();
  switch (record.record_case()) {
    case wire::LogRecord::kSnapshot:
      run->snapshot = std::move(*record.mutable_snapshot());
      break;
    case wire::LogRecord::kProgress:
      run->progress = std::move(*record.mutable_progress());
      break;
    case wire::LogRecord::kEvent:
      run->events.push_back(std::move(*record.mutable_event()));
      break;
    case wire::LogRecord::kKey:
      keys[record.key().generation()][record.key().key()] =
          record.key().value();
      break;
    case wire::LogRecord::RECORD_NOT_SET:
      break;  // ignored: written by a newer build
  }
}

}  // namespace

std::unique_ptr<RunLog> RunLog::open(const std::filesystem::path& file) {
  std::unique_ptr<RunLog> log(new RunLog());
  std::vector<std::string> records;
  log->log_ = WriteAheadLog::open(file, &records);
  if (log->log_->torn_bytes() > 0) {
    log->torn_end_ = cat(
        log->log_->torn_bytes(), " bytes behind record ", log->log_->number(),
        " of the log, which were not written to their end, were "
        "dropped");
  }
  std::map<uint64_t, std::map<std::string, std::string>> keys;
  for (const std::string& bytes : records) {
    wire::LogRecord record;
    if (!record.ParseFromString(bytes)) {
      throw Error(kLogTag, file.string() + " holds a record that is no message",
                  "start the build that wrote it, or move it away");
    }
    take(log->found_, std::move(record), keys);
  }
  if (log->found_) {
    log->found_->keys =
        keys[log->found_->snapshot.state().generation().number()];
  }
  return log;
}

void RunLog::append(const std::string& record) {
  log_->append(record);
  unsynced_ = true;
}

void RunLog::add(const wire::LogRecord& record) {
  append(record.SerializeAsString());
}

void RunLog::save(wire::LogSnapshot&& snapshot) {
  wire::LogRecord record;
  *record.mutable_snapshot() = std::move(snapshot);
  std::string bytes = record.SerializeAsString();
  if (bytes == newest_snapshot_) return;
  append(bytes);
  newest_snapshot_ = std::move(bytes);
}

void RunLog::sync() {
  if (!unsynced_.exchange(false)) return;
  try {
    log_->sync();
  } catch (const Error&) {
    unsynced_ = true;
    throw;
  }
}

bool RunLog::wants_compaction() const {
  return log_->bytes() > std::max(kCompactBytes, 2 * compacted_bytes_);
}

void RunLog::compact(const LoggedRun& run) {
  std::vector<std::string> records;
  wire::LogRecord record;
  const auto add = [&] { records.push_back(record.SerializeAsString()); };
  *record.mutable_snapshot() = run.snapshot;
  add();
  if (run.progress) {
    *record.mutable_progress() = *run.progress;
    add();
  }
  for (const wire::Event& event : run.events) {
    *record.mutable_event() = event;
    add();
  }
  for (const auto& [key, value] : run.keys) {
    wire::LoggedKey* entry = record.mutable_key();
    entry->set_generation(run.snapshot.state().generation().number());
    entry->set_key(key);
    entry->set_value(value);
    add();
  }
  log_->replace(records);
  newest_snapshot_ = records.front();
  unsynced_ = false;
  compacted_bytes_ = log_->bytes();
}

}  // namespace headroom::coordinator
