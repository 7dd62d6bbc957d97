// How a child of `headroom` says why it ended, as a value beside its output:
// the parent's end of a pipe, and the child's, whose number an environment
// variable has.
//
//   {"refusal":"[tag] what: remedy"}
//
// Threads: one.
#pragma once

#include <optional>
#include <string>

namespace headroom::cli {

inline constexpr const char* kRefusalVariable = "HEADROOM_REFUSAL_FD";

// In the child, before it starts processes of its own: they do not get it.
void open_refusal_channel();
// Once; nothing happens where no parent listens.
void tell_parent(const std::string& refusal);

// What a child that has ended wrote into the pipe `fd`; nothing if it refused
// nothing.
std::optional<std::string> read_refusal(int fd);

}  // namespace headroom::cli
