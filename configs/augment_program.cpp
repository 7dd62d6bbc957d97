#include "configs/augment_program.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::configs {

std::vector<std::string> words_of_program(const std::string& command) {
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

std::string record_of_program(const std::string& command) {
  constexpr size_t kShownDigest = 16;
  const std::vector<std::string> words = words_of_program(command);
  std::string record = joined(words, " ");
  for (const std::string& word : words) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(word, error)) continue;
    record +=
        " (" + word + " " + file_digest(word).substr(0, kShownDigest) + ")";
  }
  return record;
}

std::string take_augment_program(RunConfig& config,
                                 const std::string& command) {
  const bool is_resumed = !config.resume.empty();
  const std::string before =
      std::exchange(config.augment_program, record_of_program(command));
  config.augment_command = command;
  if (before == config.augment_program) return "";
  if (config.augment_program.empty()) {
    throw Error(
        is_resumed ? "resume" : "config",
        "augment_program is '" + before +
            "', and no file or --set starts a "
            "program: it comes from its own flag alone",
        is_resumed
            ? "its samples define the run: give --augment-program again"
            : "add --augment-program COMMAND, or take augment_program out");
  }
  if (!is_resumed) return "";
  if (before.empty()) {
    throw Error("resume",
                "the run began without --augment-program: the committed steps "
                "were made without it",
                "leave it out, or start a new run with it, without --resume");
  }
  return "resume: --augment-program was " + before + " and is now " +
         config.augment_program;
}

void require_augment_program(const RunConfig& config,
                             const std::string& command) {
  const std::string own = record_of_program(command);
  if (own == config.augment_program) return;
  const auto shown = [](const std::string& record) {
    return record.empty() ? "none" : "'" + record + "'";
  };
  throw Error("augment",
              "--augment-program of this worker's agent is " + shown(own) +
                  ", and the run's is " + shown(config.augment_program),
              "give headroom train and every agent the same one, with the same "
              "files");
}

std::string augment_program_flag(const RunConfig& config) {
  if (config.augment_command.empty()) return "";
  return " --augment-program " + shell_word(config.augment_command);
}

}  // namespace headroom::configs
