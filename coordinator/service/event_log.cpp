#include "coordinator/service/event_log.h"

#include <algorithm>
#include <utility>

namespace headroom::coordinator {
namespace {

size_t size_of(const wire::EventRecord& record) {
  return sizeof(record) + record.reason.size() + record.detail_json.size();
}

}  // namespace

const wire::EventRecord& EventLog::append(wire::EventRecord record,
                                          const std::string& time) {
  record.sequence = last_sequence_ + 1;
  record.time = time;
  return keep(std::move(record));
}

const wire::EventRecord& EventLog::restore(wire::EventRecord record) {
  return keep(std::move(record));
}

const wire::EventRecord& EventLog::keep(wire::EventRecord record) {
  // next_after() requires sequence numbers without a gap.
  if (record.sequence != last_sequence_ + 1) {
    events_.clear();
    bytes_ = 0;
  }
  last_sequence_ = record.sequence;
  bytes_ += size_of(record);
  events_.push_back(std::move(record));
  while (events_.size() > kMaxEvents ||
         (bytes_ > kMaxBytes && events_.size() > 1)) {
    bytes_ -= size_of(events_.front());
    events_.pop_front();
  }
  return events_.back();
}

const wire::EventRecord* EventLog::next_after(int64_t sequence) const {
  if (events_.empty() || sequence >= last_sequence_) return nullptr;
  const int64_t first = events_.front().sequence;
  const int64_t index = std::max<int64_t>(sequence + 1, first) - first;
  return &events_[static_cast<size_t>(index)];
}

std::vector<wire::EventRecord> EventLog::newest(size_t count) const {
  const size_t kept = std::min(count, events_.size());
  return {events_.end() - static_cast<std::ptrdiff_t>(kept), events_.end()};
}

}  // namespace headroom::coordinator
