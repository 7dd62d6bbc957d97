// The one table of flags that are not knobs of a run: how the processes find
// each other, what is printed, and what tools do. The flags of a run itself
// are in configs/flags.h.
//
// The help, the parser and the reference page of headroom follow from it, and
// so do the flags of the tools that headroom-worker carries out: a new flag of
// a tool is an entry here and a binding in worker/tools.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace headroom::configs {

// The value of flags that take one size or two, in pixels.
inline constexpr char kPixelSize[] = "HEIGHT [WIDTH]";

// What may be left out of a flag's declaration.
struct CommandFlagRules {
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  // The programs that take the flag: headroom, the tool behind the command, or
  // both.
  enum class KnownTo { kBoth, kHeadroom, kTool };

  std::string value_name = {};  // "N" in the help; "" for a switch
  // What the program takes where the flag is not given; the description ends
  // with it. "": its own choice.
  std::string default_value = {};
  // The values that there are, which make the value's name; empty: any.
  std::vector<std::string> choices = {};
  int most_values = 1;  // several are joined by spaces
  KnownTo known_to = KnownTo::kBoth;
  bool is_internal = false;   // processes of headroom give it: not in the help
  double low = -kUnbounded;   // tools refuse numbers outside [low, high]
  double high = kUnbounded;   // bounded on both sides or on none
  bool is_required = false;   // the tool refuses to start without it
  bool may_be_empty = false;  // "" is then as if the flag were not given
};

struct CommandFlag : CommandFlagRules {
  // "--img", "--imgsz"; the help shows the first.
  std::vector<std::string> spellings;
  std::vector<std::string> commands;
  std::string description;
};

// The flags that headroom takes, in the order of the help.
const std::vector<CommandFlag>& command_flags();

// The flag of headroom's `command` that is spelled so; nullptr if it has none.
const CommandFlag* find_command_flag(const std::string& command,
                                     const std::string& spelling);

// The flags that the tool behind `command` takes.
std::vector<CommandFlag> tool_flags(const std::string& command);

bool belongs_to(const CommandFlag& flag, const std::string& command);

}  // namespace headroom::configs
