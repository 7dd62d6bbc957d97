#include <gtest/gtest.h>

#include <cctype>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/repo/source_tree.h"

namespace headroom {
namespace {

// Where the comment of `line` begins; nothing where it has none.
std::optional<size_t> comment_begin(std::string_view line) {
  bool is_quoted = false;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (is_quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) {
      is_quoted = !is_quoted;
    } else if (!is_quoted && line[i] == '/' && line[i + 1] == '/') {
      return i;
    }
  }
  return std::nullopt;
}

// The first word of the comment that begins at `begin`, in small letters.
std::string first_word(std::string_view line, size_t begin) {
  std::string word;
  const size_t text = line.find_first_not_of("/ ", begin);
  for (size_t i = text; i < line.size(); ++i) {
    const auto letter = static_cast<unsigned char>(line[i]);
    if (std::isalpha(letter) == 0) break;
    word.push_back(static_cast<char>(std::tolower(letter)));
  }
  return word;
}

// Comments that are the second half of a sentence whose first half is a name:
// "int64_t bytes;  // of the file". `lines` are counted from 1.
std::vector<size_t> comments_without_subject(
    const std::vector<std::string>& lines) {
  static const std::set<std::string> prepositions = {
      "of",      "by",     "in",      "for",    "from",   "on",      "at",
      "to",      "with",   "without", "under",  "as",     "after",   "before",
      "between", "among",  "per",     "within", "over",   "until",   "beside",
      "beyond",  "below",  "above",   "inside", "behind", "outside", "since",
      "into",    "during", "through", "via",    "like",   "than",    "towards"};
  // A sentence may begin with these, what follows a field is none.
  static const std::set<std::string> conjunctions = {
      "that", "which", "whose", "where", "while", "when",
      "if",   "so",    "and",   "or",    "but",   "because"};
  std::vector<size_t> found;
  std::optional<size_t> column_before;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::optional<size_t> begin = comment_begin(lines[i]);
    const bool is_alone = begin && lines[i].find_first_not_of(' ') == *begin;
    const bool goes_on = is_alone && column_before == begin;
    column_before = begin;
    if (!begin || goes_on) continue;
    const std::string word = first_word(lines[i], *begin);
    if (prepositions.contains(word) ||
        (!is_alone && conjunctions.contains(word))) {
      found.push_back(i + 1);
    }
  }
  return found;
}

TEST(Comments, EachBeginsWithTheThingThatItSpeaksOf) {
  size_t seen = 0;
  for (const SourceFile& file : project_files()) {
    const bool is_checked = is_cpp(file) || file.path.ends_with(".cu") ||
                            file.path.ends_with(".cuh") ||
                            file.path.ends_with(".proto");
    if (!is_checked || file.path.starts_with("tests/")) continue;
    ++seen;
    for (const size_t line : comments_without_subject(file.lines)) {
      ADD_FAILURE() << file.path << ":" << line << ": " << file.lines[line - 1];
    }
  }
  EXPECT_GT(seen, 500u);
}

TEST(Comments, TheCheckFindsWhatItLooksFor) {
  using Lines = std::vector<size_t>;
  EXPECT_EQ(comments_without_subject({"  int64_t bytes = 0;  // of the file"}),
            Lines{1});
  EXPECT_EQ(comments_without_subject({"  int64_t bytes = 0;  // where it is"}),
            Lines{1});
  EXPECT_EQ(comments_without_subject({"", "  // By rank.", "  int parts;"}),
            Lines{2});
  EXPECT_EQ(comments_without_subject(
                {"int a;  // the first", "// At once.", "int b;"}),
            Lines{2})
      << "a comment of its own, not the rest of the one above";
}

TEST(Comments, TheCheckLeavesSentencesAlone) {
  using Lines = std::vector<size_t>;
  EXPECT_EQ(
      comments_without_subject(
          {"  int64_t bytes = 0;  // the file's",
           "  // The sum over all ranks, which is", "  // of no use here.",
           "  int a;  // the first word", "          // of the second",
           "  // Where nothing is known, all are taken.",
           "  // Offset of the file.", "  open(\"http://of.net\");"}),
      Lines{});
}

}  // namespace
}  // namespace headroom
