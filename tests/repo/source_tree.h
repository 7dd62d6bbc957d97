// The project's own text files, for tests that check policies.
#pragma once

#include <string>
#include <vector>

namespace headroom {

struct SourceFile {
  std::string path;  // relative to the root: "parallel/plan/layout.h"
  std::vector<std::string> lines;
};

// Every text file below the root except those excluded by .gitignore, sorted.
std::vector<SourceFile> project_files();

// Returns whether `file` is C++ (.h, .cpp).
bool is_cpp(const SourceFile& file);

}  // namespace headroom
