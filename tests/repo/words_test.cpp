#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <regex>
#include <set>

#include "tests/repo/source_tree.h"

namespace headroom {
namespace {

bool is_word_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// True if `line` contains `word` as a whole word.
bool has_word(const std::string& line, const std::string& word) {
  for (size_t at = line.find(word); at != std::string::npos;
       at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word_character(line[at - 1])) &&
        (end == line.size() || !is_word_character(line[end]))) {
      return true;
    }
  }
  return false;
}

// An absolute path of the machine on which a line was written.
bool has_absolute_path(const std::string& line, const std::string& folder) {
  for (size_t at = line.find(folder); at != std::string::npos;
       at = line.find(folder, at + 1)) {
    const size_t end = at + folder.size();
    const bool starts =
        at == 0 ||
        std::string(" \t\"'`=:(,<").find(line[at - 1]) != std::string::npos;
    if (starts && (end == line.size() || !is_word_character(line[end]))) {
      return true;
    }
  }
  return false;
}

// Comments and READMEs refer to files by name; these files must exist.
TEST(Words, HeadersAreNamedThatExist) {
  const std::vector<SourceFile> files = project_files();
  std::set<std::string> known = {"ATen.h", "jpeglib.h", "nccl.h"};
  for (const SourceFile& file : files) {
    known.insert(std::filesystem::path(file.path).filename());
  }
  const std::regex name("([A-Za-z0-9_/.]+\\.h)\\b");
  for (const SourceFile& file : files) {
    const bool is_text = file.path.ends_with(".md");
    if (!is_cpp(file) && !is_text) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const size_t begin = is_text ? 0 : line.find("//");
      if (begin == std::string::npos) continue;
      std::sregex_iterator match(
          line.begin() + static_cast<std::ptrdiff_t>(begin), line.end(), name);
      for (; match != std::sregex_iterator(); ++match) {
        const std::filesystem::path path = match->str(1);
        EXPECT_TRUE(known.contains(path.filename()))
            << file.path << ":" << i + 1 << ": " << path;
      }
    }
  }
}

TEST(Words, NothingIsLeftForLater) {
  // The words are composed here, so that this file does not contain them.
  const std::vector<std::string> words = {std::string("TO") + "DO",
                                          std::string("FIX") + "ME",
                                          std::string("XX") + "X"};
  for (const SourceFile& file : project_files()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& word : words) {
        EXPECT_FALSE(has_word(file.lines[i], word))
            << file.path << ":" << i + 1 << ": " << file.lines[i];
      }
    }
  }
}

// LibTorch's own calls lock pages for the accelerator of the process. If this
// is not the card, but another device that the process has registered too,
// copying to the card throws.
TEST(Words, PagesAreLockedForTheDeviceThatIsMeant) {
  const std::vector<std::string> calls = {".pin_memory(",
                                          ".pinned_memory(true"};
  for (const SourceFile& file : project_files()) {
    if (!is_cpp(file) || file.path == "tests/repo/words_test.cpp") continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& call : calls) {
        EXPECT_EQ(file.lines[i].find(call), std::string::npos)
            << file.path << ":" << i + 1 << ": " << file.lines[i];
      }
    }
  }
}

TEST(Words, NoPathOfOneMachine) {
  const std::string folder = std::string("/wo") + "rk";
  for (const SourceFile& file : project_files()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(has_absolute_path(file.lines[i], folder))
          << file.path << ":" << i + 1 << ": " << file.lines[i];
    }
  }
}

TEST(Words, TheChecksFindPlantedFaults) {
  EXPECT_TRUE(has_word("// LATER: that", "LATER"));
  EXPECT_FALSE(has_word("mktemp LATERX", "LATER"));
  EXPECT_TRUE(has_absolute_path("x = \"/place/y\"", "/place"));
  EXPECT_TRUE(has_absolute_path("cd /place", "/place"));
  EXPECT_FALSE(has_absolute_path("a/place/y", "/place"));
  EXPECT_FALSE(has_absolute_path("see /placeholder", "/place"));
}

// The files have only spaces, as YAML requires, and no Windows line ends.
TEST(Words, NoTabsAndNoCarriageReturns) {
  for (const SourceFile& file : project_files()) {
    const bool checked = is_cpp(file) || file.path.ends_with(".yaml") ||
                         file.path.ends_with(".txt") ||
                         file.path.ends_with(".cmake") ||
                         file.path.ends_with(".md");
    if (!checked) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_EQ(file.lines[i].find_first_of("\t\r"), std::string::npos)
          << file.path << ":" << i + 1;
    }
  }
}

}  // namespace
}  // namespace headroom
