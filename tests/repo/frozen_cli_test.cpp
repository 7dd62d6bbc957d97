// The command line is stable, since users, scripts and documents rely on it. If
// a flag is added, removed or moved, tests/repo/frozen_cli.txt must show it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "configs/options.h"
#include "deploy/cli/args/help_text.h"
#include "tests/repo/reference_page.h"

namespace headroom {
namespace {

// One line per flag, such as "train --img --imgsz --img-size HEIGHT [WIDTH]";
// for a flag of a tool only its first spelling.
std::vector<std::string> program_flags() {
  std::vector<std::string> lines;
  for (const cli::CommandSummary& command : cli::command_summaries()) {
    for (const auto* options :
         {&configs::run_options(), &configs::command_options()}) {
      for (configs::Option option : *options) {
        if (!belongs_to(option, command.name) || option.is_internal) continue;
        if (option.key.empty()) option.names.resize(1);
        std::string line = command.name;
        for (const std::string& name : option.names) line += " " + name;
        if (!is_switch(option)) line += " " + option.value_name;
        lines.push_back(line);
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> frozen_flags() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/tests/repo/frozen_cli.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && !line.starts_with('#')) lines.push_back(line);
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(FrozenCommandLine, IsTheListInFrozenCliTxt) {
  std::vector<std::string> missing, added;
  const std::vector<std::string> frozen = frozen_flags();
  const std::vector<std::string> present = program_flags();
  ASSERT_FALSE(frozen.empty());
  ASSERT_TRUE(std::is_sorted(frozen.begin(), frozen.end()));
  std::set_difference(frozen.begin(), frozen.end(), present.begin(),
                      present.end(), std::back_inserter(missing));
  std::set_difference(present.begin(), present.end(), frozen.begin(),
                      frozen.end(), std::back_inserter(added));
  EXPECT_EQ(joined(missing), "") << "in the file only";
  EXPECT_EQ(joined(added), "") << "in the program only";
}

TEST(FrozenCommandLine, TheHelpShowsEveryFlag) {
  for (const std::string& line : frozen_flags()) {
    const std::string command = line.substr(0, line.find(' '));
    const size_t begin = line.find("--");
    const std::string spelling =
        line.substr(begin, line.find(' ', begin) - begin);
    EXPECT_THAT(cli::command_help(command),
                ::testing::HasSubstr("\n  " + spelling))
        << line;
  }
}

TEST(Reference, ThePageEqualsTheDeclarations) {
  const std::string path = HEADROOM_SOURCE_DIR "/deploy/guide/reference.md";
  if (std::getenv("HEADROOM_WRITE_REFERENCE") != nullptr) {
    std::ofstream(path) << reference_page();
  }
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == reference_page())
      << "renew it: HEADROOM_WRITE_REFERENCE=1 build/tests/test_frozen_cli";
}

}  // namespace
}  // namespace headroom
