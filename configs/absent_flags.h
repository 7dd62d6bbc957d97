// Flags and values of YOLOv5's programs and of ultralytics' yolo that this
// version does not accept. Each has a message of its own instead of "unknown
// flag". The messages are in configs/flags/yolov5.yaml, which is embedded in
// the program.
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

  // An ignored flag requests the normal behaviour; `why` is logged. Every other
  // absent flag is refused.
  bool is_ignored() const { return remedy.empty(); }
};

// The absent flags of `command`: "detect", "export"; one list for "train",
// "val", "plan" and "coordinator"; empty for other commands.
const std::vector<AbsentFlag>& absent_flags(const std::string& command);

// All flags of YOLOv5's program of this name, including those not accepted
// here. As in argparse, a unique prefix of a flag counts as the flag.
const std::vector<std::string>& published_flags(const std::string& command);

// Returns nullptr if `spelling` is not an absent flag.
const AbsentFlag* find_absent_flag(const std::string& command,
                                   const std::string& spelling);

// A command of other programs that headroom does not have, such as "track".
struct OtherWord {
  std::string why;
  std::string use;  // what to type
};

// Returns nullptr if `word` is not on the list.
const OtherWord* find_other_word(const std::string& word);

// The command of headroom for a mode of ultralytics' yolo or a script of
// YOLOv5's
// ("detect" for "predict" and "detect.py"), or "".
std::string command_of_mode(const std::string& mode);

// Returns the words for `pair`, ultralytics' NAME=VALUE ("imgsz=320"), as
// arguments of `command` ("--img", "320"). Returns no words if the pair asks
// for the normal behaviour. Throws Error, as answer_unknown_flag does, for a
// pair that has no equivalent.
std::vector<std::string> words_of_pair(const std::string& command,
                                       const std::string& pair);

// Returns the remedy for setting `key` to YOLOv5's value `choice`; nullopt if
// that value is not on the list of absent values.
std::optional<std::string> absent_choice(const std::string& key,
                                         const std::string& choice);

// Handles `spelling`, which is not a flag of `command`. For an ignored flag,
// returns the line to log. Otherwise throws Error: with the absent flag's
// message, with --set for a key that has no flag, with the command that has
// this flag, here or in another program, or "unknown flag" with the nearest
// flag of `command`.
std::string answer_unknown_flag(const std::string& command,
                                const std::string& spelling);

}  // namespace headroom::configs
