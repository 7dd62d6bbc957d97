// Flags that users of YOLOv5 or readers of the documentation may type and that
// this version does not act on: each has an answer instead of "unknown flag".
#pragma once

#include <string>
#include <vector>

namespace headroom::configs {

struct AbsentFlag {
  enum class Answer {
    kRefused,  // exit 2 with `why`
    kIgnored,  // asks for what happens anyway: one log line with `why`
  };
  std::string spelling;  // "--evolve"
  Answer answer = Answer::kRefused;
  int max_values = 0;  // words that may follow it on the command line
  std::string why;     // "... is not in this version"
  std::string remedy;  // what to use instead
};

// Those of `command`: "detect", "export"; one list for "train", "val", "plan"
// and "coordinator"; none for other commands.
const std::vector<AbsentFlag>& absent_flags(const std::string& command);

// Every flag that YOLOv5's program of this name takes today, accepted here or
// not: a beginning that one of them alone has stands for it, as in argparse.
const std::vector<std::string>& published_flags(const std::string& command);

// nullptr when `spelling` is not one of them.
const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling);

// Throws the refusal of `spelling`, which is no flag of `command` ("train",
// "val", or "plan", which has train's): an absent flag's answer, a flag of the
// other command, or "unknown flag" with the nearest of this command's and of
// `more_spellings`. Returns only for an ignored flag, with the line to log.
std::string answer_unknown_flag(const std::string& command,
                                const std::string& spelling,
                                const std::vector<std::string>& more_spellings);

}  // namespace headroom::configs
