// What members say, as text: short, in one line, and nothing in it commands the
// terminal of whoever reads it.
//
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/service/call_admission.h"
#include "proto/event_file.h"

namespace headroom::coordinator {

// In bytes; what is longer is cut, with "...".
inline constexpr size_t kMaxMessage = 4000;
inline constexpr size_t kMaxReason = 500;

// Refuses an event whose detail, which cannot be cut, is too long.
Answer limit_words(wire::EventRecord& event);

// The end of a process's stderr, with its lines.
std::string end_of_last_words(std::string_view last_words);

}  // namespace headroom::coordinator
