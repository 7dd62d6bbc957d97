#include "parallel/base/user_cache.h"

#include <cstdlib>

namespace headroom {
namespace {

std::filesystem::path folder_of(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::filesystem::path folder = value == nullptr ? "" : value;
  return folder.is_absolute() ? folder : std::filesystem::path();
}

}  // namespace

std::filesystem::path user_cache_folder() {
  std::filesystem::path cache = folder_of("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::filesystem::path home = folder_of("HOME");
    if (home.empty()) return "";
    cache = home / ".cache";
  }
  return cache / "headroom";
}

}  // namespace headroom
