#include "deploy/cli/remedy_scope.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "configs/options.h"
#include "parallel/base/device_list.h"
#include "parallel/planner/model_layers.h"

namespace headroom::cli {
namespace {

// Whether a word of the command line (up to "=") sets the same option as `use`.
bool is_use_of(const std::string& word, const configs::FlagUse& use) {
  const std::string spelling = word.substr(0, word.find('='));
  if (spelling == use.spelling) return true;
  const configs::Option* flag = configs::find_flag(spelling);
  return flag != nullptr && flag == configs::find_flag(use.spelling);
}

void add(std::vector<std::string>& words, const configs::FlagUse& use) {
  words.push_back(use.spelling);
  words.insert(words.end(), use.values.begin(), use.values.end());
}

// The index after the flag at `at` and its values.
size_t behind_flag(const std::vector<std::string>& words, size_t at) {
  const bool has_values = words[at].find('=') == std::string::npos;
  ++at;
  while (has_values && at < words.size() && !words[at].starts_with("--")) ++at;
  return at;
}

// Replaces a flag where it is, or adds it at the end.
void put(std::vector<std::string>& words, const configs::FlagUse& use) {
  std::vector<std::string> changed;
  bool is_there = false;
  for (size_t i = 0; i < words.size();) {
    if (!words[i].starts_with("--") || !is_use_of(words[i], use)) {
      changed.push_back(words[i++]);
      continue;
    }
    if (!is_there) add(changed, use);
    is_there = true;
    i = behind_flag(words, i);
  }
  if (!is_there) add(changed, use);
  words = std::move(changed);
}

// The flags that fix the plan of a resumed run. If one of them is given, the
// saved plan is not restored, so a remedy must give all of them.
std::vector<configs::FlagUse> flags_of_plan(const configs::RunConfig& config) {
  std::vector<std::string> keys;
  for (const configs::Option& option : configs::run_options()) {
    if (option.of_plan) keys.push_back(option.key);
  }
  return configs::changed_flags({}, config, keys);
}

}  // namespace

std::string command_with(const CommandLine& line,
                         const planner::Remedy& remedy) {
  std::vector<std::string> words = line.words;
  if (!remedy.config.resume.empty()) {
    for (const configs::FlagUse& use : flags_of_plan(remedy.config)) {
      put(words, use);
    }
  }
  for (const configs::FlagUse& use : remedy.flags) put(words, use);
  if (remedy.drops_sync_bn) remove_flag(words, "--sync-bn");
  CommandLine changed = line;
  changed.words = std::move(words);
  return command_text(changed);
}

std::string command_text(const CommandLine& line) {
  std::string text = "headroom " + line.command;
  for (const std::string& word : line.words) text += " " + quoted(word);
  return text;
}

void remove_flag(std::vector<std::string>& words, const std::string& spelling) {
  for (size_t i = 0; i < words.size();) {
    if (!words[i].starts_with("--") || !is_use_of(words[i], {spelling, {}})) {
      ++i;
      continue;
    }
    words.erase(
        words.begin() + static_cast<std::ptrdiff_t>(i),
        words.begin() + static_cast<std::ptrdiff_t>(behind_flag(words, i)));
  }
}

planner::RemedyScope remedy_scope(const CommandLine& line,
                                  const configs::RunConfig& config,
                                  bool has_launcher, int num_agents,
                                  int cores) {
  planner::RemedyScope scope;
  scope.processes_each = num_agents;
  const bool is_settled_by_cards =
      computes_on_cards(config.device) && !config.share_devices;
  if (is_settled_by_cards) scope.processes_flag.clear();
  if (!has_launcher && config.threads == 0) {
    scope.threads_of = [cores](int world_size) {
      return std::max<int64_t>(1, cores / world_size);
    };
  }
  if (!has_launcher && !computes_on_cards(config.device)) scope.cores = cores;
  const bool may_change_model =
      config.resume.empty() && config.weights.empty() && config.teacher.empty();
  if (may_change_model) scope.models = planner::smaller_models(config.cfg);
  if (!has_launcher) {
    scope.command_with = [line](const planner::Remedy& remedy) {
      return command_with(line, remedy);
    };
  }
  return scope;
}

}  // namespace headroom::cli
