// CommandLine: the arguments of a command, as plain values.
//
//   headroom COMMAND [flags]
//
// configs/options.h declares the flags; this file only splits the arguments.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/flags.h"

namespace headroom::cli {

struct CommandLine {
  std::string command;             // "" with --help or --version alone
  std::vector<std::string> words;  // words typed after the command
  bool help = false;
  bool version = false;
  // Flags of the run's configuration, in the order given.
  std::vector<configs::FlagUse> run_flags;
  // The other flags of the command with their values; "" for a switch. Several
  // values of a repeated flag are separated by line ends.
  std::map<std::string, std::string> command_flags;
  std::vector<std::string> notes;  // messages to print
  // Words without a flag: status RUN_DIR, report RUN_DIR..., fetch NAME
  std::vector<std::string> operands;

  bool has(const std::string& command_flag) const {
    return command_flags.contains(command_flag);
  }
  // The given value, or the flag's declared default; "" if there is neither.
  // REQUIRES: the command has such a flag.
  std::string value_of(const std::string& command_flag) const;
  // Throws Error (exit 2) unless the value is a whole number >= 1.
  int count_of(const std::string& command_flag) const;
};

// `word`, quoted for a shell where it needs that.
std::string quoted(const std::string& word);

// Returns `text` with the flags of runs spelled as in `words`: a user who typed
// --imgsz reads about --imgsz, not about --img.
std::string as_typed(const std::string& text,
                     const std::vector<std::string>& words);

// `words` without the program's name. Throws Error (exit 2, one line) for an
// unknown word, with the nearest known one.
CommandLine parse_command_line(const std::vector<std::string>& words);

}  // namespace headroom::cli
