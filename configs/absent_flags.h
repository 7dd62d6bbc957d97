// Flags and values of YOLOv5's programs that this version does not accept. Each
// has its own answer instead of "unknown flag", from configs/flags/yolov5.yaml,
// which is part of the program.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace headroom::configs {

struct AbsentFlag {
  std::string spelling;      // "--evolve"
  std::string why;           // "... is not in this version"
  std::string remedy;        // what to use instead; "" for an ignored flag
  bool takes_value = false;  // whether an ignored flag has a value

  // Ignored flags request the normal behaviour; `why` is logged. Others are
  // refused.
  bool is_ignored() const { return remedy.empty(); }
};

// The absent flags of `command`: "detect", "export"; one list for "train",
// "val", "plan" and "coordinator"; empty for other commands.
const std::vector<AbsentFlag>& absent_flags(const std::string& command);

// All flags of YOLOv5's program of this name, accepted here or not. As in
// argparse, a unique prefix of one is accepted for it.
const std::vector<std::string>& published_flags(const std::string& command);

// Returns nullptr if `spelling` is not an absent flag.
const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling);

// The remedy for setting `key` to YOLOv5's value `choice`; nothing if that
// value is not an absent one.
std::optional<std::string> absent_choice(const std::string& key,
                                         const std::string& choice);

// Throws the refusal of `spelling`, which is no flag of `command` ("train",
// "val", or "plan", which has train's flags): an absent flag's answer, a flag
// of the other command, or "unknown flag" with the nearest of this command's
// flags and of `more_spellings`. Returns only for an ignored flag, with the
// line to log.
std::string answer_unknown_flag(const std::string& command,
                                const std::string& spelling,
                                const std::vector<std::string>& more_spellings);

}  // namespace headroom::configs
