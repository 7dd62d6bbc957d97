#include "parallel/base/numbered_folder.h"

#include <string>

namespace headroom {

namespace fs = std::filesystem;

fs::path free_folder_name(const fs::path& base) {
  fs::path candidate = base;
  for (int number = 2; fs::exists(fs::symlink_status(candidate)); ++number) {
    candidate = base.string() + std::to_string(number);
  }
  return candidate;
}

fs::path make_free_folder(const fs::path& base) {
  fs::create_directories(base.parent_path());
  for (;;) {
    const fs::path name = free_folder_name(base);
    // False: somebody else was faster.
    if (fs::create_directory(name)) return name;
  }
}

}  // namespace headroom
