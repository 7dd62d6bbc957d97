// Flags and values of YOLOv5's programs that this version does not take: each
// has an answer instead of "unknown flag". configs/flags/yolov5.yaml, which is
// part of the program, holds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace headroom::configs {

struct AbsentFlag {
  std::string spelling;      // "--evolve"
  std::string why;           // "... is not in this version"
  std::string remedy;        // what to use instead; "" of an ignored flag
  bool takes_value = false;  // an ignored flag with a word behind it

  // Asks for what happens anyway: one line with `why`. Others are refused.
  bool is_ignored() const { return remedy.empty(); }
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

// What to do instead of setting `key` to YOLOv5's value `choice`; nothing where
// it is none that is missing here.
std::optional<std::string> absent_choice(const std::string& key,
                                         const std::string& choice);

// Throws the refusal of `spelling`, which is no flag of `command` ("train",
// "val", or "plan", which has train's): an absent flag's answer, a flag of the
// other command, or "unknown flag" with the nearest of this command's and of
// `more_spellings`. Returns only for an ignored flag, with the line to log.
std::string answer_unknown_flag(const std::string& command,
                                const std::string& spelling,
                                const std::vector<std::string>& more_spellings);

}  // namespace headroom::configs
