#include "coordinator/event_log.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/base/log.h"

namespace headroom {
namespace {

size_t size_of(const EventRecord& record) {
  return sizeof(record) + record.event.size() + record.reason.size() +
         record.detail_json.size();
}

}  // namespace

const EventRecord& EventLog::append(EventRecord record,
                                    const std::string& time) {
  record.sequence = ++last_sequence_;
  record.time = time;
  bytes_ += size_of(record);
  events_.push_back(std::move(record));
  while (events_.size() > kMaxEvents ||
         (bytes_ > kMaxBytes && events_.size() > 1)) {
    bytes_ -= size_of(events_.front());
    events_.pop_front();
  }
  return events_.back();
}

const EventRecord* EventLog::next_after(int64_t sequence) const {
  if (events_.empty() || sequence >= last_sequence_) return nullptr;
  const int64_t first = events_.front().sequence;
  const int64_t index = std::max<int64_t>(sequence + 1, first) - first;
  return &events_[static_cast<size_t>(index)];
}

std::vector<EventRecord> EventLog::newest(size_t count) const {
  const size_t kept = std::min(count, events_.size());
  return {events_.end() - static_cast<std::ptrdiff_t>(kept), events_.end()};
}

std::string to_json_line(const EventRecord& record) {
  nlohmann::ordered_json line;
  line["event"] = record.event;
  line["step"] = record.step;
  line["rank"] = record.rank;
  line["reason"] = record.reason;
  line["time"] = record.time;
  if (!record.detail_json.empty()) {
    const auto detail =
        nlohmann::ordered_json::parse(record.detail_json, nullptr, false);
    if (detail.is_object()) {
      for (const auto& [key, value] : detail.items()) {
        if (!line.contains(key)) line[key] = value;
      }
    } else {
      line["detail"] = record.detail_json;
    }
  }
  return line.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const time_t seconds = static_cast<time_t>(milliseconds / 1000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof(text), "%s.%03dZ", date,
                static_cast<int>(milliseconds % 1000));
  return text;
}

void EventFile::add(std::vector<std::string> lines) {
  if (failed_ || run_directory_.empty()) return;
  std::move(lines.begin(), lines.end(), std::back_inserter(pending_));
}

void EventFile::write() {
  std::error_code ignored;
  if (pending_.empty() ||
      !std::filesystem::is_directory(run_directory_, ignored)) {
    return;
  }
  const std::string path = run_directory_ + "/events.jsonl";
  std::ofstream file(path, std::ios::app);
  for (const std::string& line : pending_) file << line << '\n';
  file.close();
  if (!file) {
    log::warn(path + " cannot be written (" + std::strerror(errno) +
              "): events are only in this log from here on");
    failed_ = true;
  }
  pending_.clear();
}

}  // namespace headroom
