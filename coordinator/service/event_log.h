// EventLog: the newest events of the run, numbered. events.jsonl has all of
// them (proto/event_file.h); only the tick thread writes it, so that a slow
// disk delays no answer.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "proto/event_file.h"

namespace headroom::coordinator {

class EventLog {
 public:
  static constexpr size_t kMaxEvents = 1000;
  static constexpr size_t kMaxBytes = 16 << 20;

  // Numbers the event, stamps it with `time`, drops the oldest events above the
  // bounds. Returns the stored event.
  const wire::EventRecord& append(wire::EventRecord record,
                                  const std::string& time);

  // Adds an event of an earlier coordinator with its number and time. REQUIRES:
  // its sequence is above the last event's.
  const wire::EventRecord& restore(wire::EventRecord record);

  // The oldest stored event after `sequence`; null if there is none.
  const wire::EventRecord* next_after(int64_t sequence) const;

  // The newest `count` events, oldest first.
  std::vector<wire::EventRecord> newest(size_t count) const;

 private:
  const wire::EventRecord& keep(wire::EventRecord record);

  std::deque<wire::EventRecord> events_;
  size_t bytes_ = 0;
  int64_t last_sequence_ = 0;
};

}  // namespace headroom::coordinator
