#include "tests/repo/source_tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace headroom {
namespace {

namespace fs = std::filesystem;

bool is_left_out(const std::string& name) {
  return name == ".git" || name == ".deps" || name == "runs" ||
         name == "__pycache__" || name == ".cache" ||
         name == "compile_commands.json" || name.starts_with("build");
}

bool is_text(const std::string& content) {
  return content.find('\0') == std::string::npos;
}

}  // namespace

std::vector<SourceFile> project_files() {
  const fs::path root = HEADROOM_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root);
       it != fs::recursive_directory_iterator(); ++it) {
    // deploy/local/build.sh has the name of a build folder, but is a file.
    if (is_left_out(it->path().filename().string()) &&
        (it->is_directory() || it->path().extension() != ".sh")) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    std::ifstream stream(it->path(), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    if (!is_text(content)) continue;
    SourceFile file;
    file.path = it->path().lexically_relative(root).string();
    for (size_t begin = 0; begin < content.size();) {
      const size_t end = std::min(content.find('\n', begin), content.size());
      file.lines.push_back(content.substr(begin, end - begin));
      begin = end + 1;
    }
    files.push_back(std::move(file));
  }
  std::sort(
      files.begin(), files.end(),
      [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

bool is_cpp(const SourceFile& file) {
  return file.path.ends_with(".h") || file.path.ends_with(".cpp");
}

}  // namespace headroom
