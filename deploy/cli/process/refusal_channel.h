// How a child of `headroom` says why it ended, as a value beside its output:
// the parent's end of a pipe, and the child's, whose number an environment
// variable has.
//
//   {"refusal":"[tag] what: remedy","tag":"tag"}
//
// Threads: one.
#pragma once

#include <optional>
#include <string>

namespace headroom::cli {

struct Refusal {
  std::string text;
  std::string tag = {};  // the Error's tag; "" where none was thrown
};

inline constexpr const char* kRefusalVariable = "HEADROOM_REFUSAL_FD";

// The child calls it before it starts processes, which do not get it.
void open_refusal_channel();
// Once; nothing happens where no parent listens.
void tell_parent(const Refusal& refusal);

// What a child that has ended wrote into the pipe `fd`; nothing if it refused
// nothing.
std::optional<Refusal> read_refusal(int fd);

}  // namespace headroom::cli
