// EventLog: the newest events of the run, numbered. All of them are in
// events.jsonl (proto/event_file.h), which the tick thread alone writes, so
// that a slow disk delays nobody's answer.
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

  // Numbers the event, stamps it with `time` and drops the oldest beyond the
  // bounds. Returns it as kept.
  const wire::EventRecord& append(wire::EventRecord record,
                                  const std::string& time);

  // Keeps an event with the number and time that it has, as when a coordinator
  // goes on. REQUIRES: its sequence is beyond the last one's.
  const wire::EventRecord& restore(wire::EventRecord record);

  // The oldest kept event after `sequence`; null if there is none.
  const wire::EventRecord* next_after(int64_t sequence) const;

  // The newest `count`, oldest first.
  std::vector<wire::EventRecord> newest(size_t count) const;

 private:
  const wire::EventRecord& keep(wire::EventRecord record);

  std::deque<wire::EventRecord> events_;
  size_t bytes_ = 0;
  int64_t last_sequence_ = 0;
};

}  // namespace headroom::coordinator
