// The environment of this process, the environment for the user's own programs,
// and the folder for files that can be made or fetched again, which environment
// variables name.
//
// Threads: any, as long as the environment does not change.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace headroom {

using Environment = std::map<std::string, std::string>;

inline Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      environment[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return environment;
}

// For a program that is not part of Headroom, such as ffmpeg: the environment
// of this process as it was before a bundle's launcher changed it
// (deploy/bundle/launcher.sh). Our libraries may be older or newer than those
// that such a program was built for.
inline Environment users_environment() {
  constexpr const char* kPath = "LD_LIBRARY_PATH";
  Environment environment = process_environment();
  const auto former = environment.extract("HEADROOM_FORMER_LIBRARY_PATH");
  if (former.empty()) return environment;
  environment[kPath] = former.mapped();
  // The launcher also stores an empty path if the variable was not set.
  if (former.mapped().empty()) environment.erase(kPath);
  return environment;
}

// $XDG_CACHE_HOME/headroom, else ~/.cache/headroom; "" if neither
// XDG_CACHE_HOME nor HOME is an absolute path. The folder may not exist yet.
inline std::filesystem::path user_cache_folder() {
  const auto folder_of = [](const char* variable) {
    const char* const value = std::getenv(variable);
    const std::filesystem::path folder = value == nullptr ? "" : value;
    return folder.is_absolute() ? folder : std::filesystem::path();
  };
  std::filesystem::path cache = folder_of("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::filesystem::path home = folder_of("HOME");
    if (home.empty()) return "";
    cache = home / ".cache";
  }
  return cache / "headroom";
}

// "NAME=VALUE".
inline std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : environment) {
    texts.push_back(name + "=" + value);
  }
  return texts;
}

// Converts texts (words, or assignments) to the form in which exec() takes
// them. The pointers are valid as long as `texts` does not change.
inline std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace headroom
