// How a child process reports to its parent why it ended, apart from its
// output: it writes one line of JSON into a pipe. An environment variable holds
// the number of the child's end.
//
//   {"tag":"data","text":"what happened","remedy":"what to do"}
//
// Threads: one.
#pragma once

#include <optional>
#include <string>

namespace headroom::wire {

struct Refusal {
  std::string text;
  // The tag of the Error; "" if no Error was thrown.
  std::string tag = {};
  std::string remedy = {};

  // The refusal as printed: "[tag] text: remedy", or `text` alone.
  std::string line() const;
};

inline constexpr const char* kRefusalVariable = "HEADROOM_REFUSAL_FD";

// Called by the child first, so that its own children do not get the pipe.
void open_refusal_channel();
// Writes the refusal, once. Does nothing if no parent reads it.
void tell_parent(const Refusal& refusal);

// Reads the refusal that an ended child wrote into the pipe `fd`; nullopt if
// there is none.
std::optional<Refusal> read_refusal(int fd);

}  // namespace headroom::wire
