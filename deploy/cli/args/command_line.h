// CommandLine: what was typed, as plain values.
//
//   headroom COMMAND [flags]
//
// Which flags there are follows from configs/options.h; this file only sorts
// the words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/flags.h"

namespace headroom::cli {

struct CommandLine {
  std::string command;             // "" when there is none: --help or --version
  std::vector<std::string> words;  // words typed after the command
  bool help = false;
  bool version = false;
  std::vector<configs::FlagUse> run_flags;  // flags as they were given
  // Flags that are no keys of a run, and their values; a switch has "".
  std::map<std::string, std::string> command_flags;
  std::vector<std::string> notes;  // lines to say
  // Folders that are named without a flag: status RUN_DIR, report RUN_DIR...
  std::vector<std::string> run_directories;

  bool has(const std::string& command_flag) const {
    return command_flags.contains(command_flag);
  }
  // What was given, or the flag's declared default; "" where it has none.
  // REQUIRES: the command has such a flag.
  std::string value_of(const std::string& command_flag) const;
  // Throws Error (exit 2) unless the value is a whole number >= 1.
  int count_of(const std::string& command_flag) const;
};

// `text` with the flags of runs spelled as among `words`: people who typed
// --imgsz read about --imgsz, not about --img.
std::string as_typed(const std::string& text,
                     const std::vector<std::string>& words);

// `words` without the program's name. Throws Error (exit 2, one line) for
// everything that is not known, with the nearest thing that is.
CommandLine parse_command_line(const std::vector<std::string>& words);

}  // namespace headroom::cli
