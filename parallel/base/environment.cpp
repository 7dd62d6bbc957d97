#include "parallel/base/environment.h"

#include <unistd.h>

namespace headroom {

Environment process_environment() {
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

Environment users_environment() {
  constexpr const char* kPath = "LD_LIBRARY_PATH";
  Environment environment = process_environment();
  const auto former = environment.extract("HEADROOM_FORMER_LIBRARY_PATH");
  if (former.empty()) return environment;
  environment[kPath] = former.mapped();
  // The launcher does not distinguish an empty path from none.
  if (former.mapped().empty()) environment.erase(kPath);
  return environment;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : environment) {
    texts.push_back(name + "=" + value);
  }
  return texts;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace headroom
