#include "parallel/base/terminal.h"

#include <gtest/gtest.h>

#include <map>

#include "parallel/base/utf8.h"

namespace headroom {
namespace {

TerminalStyle style_in(bool is_terminal,
                       const std::map<std::string, std::string>& environment) {
  return terminal_style(is_terminal, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(TerminalStyle, ATerminalIsRewrittenAndColoured) {
  const TerminalStyle style =
      style_in(true, {{"TERM", "xterm"}, {"LANG", "de_DE.UTF-8"}});
  EXPECT_TRUE(style.rewrites_lines);
  EXPECT_TRUE(style.has_colours);
  EXPECT_TRUE(style.is_unicode);
}

TEST(TerminalStyle, APipeADumbTerminalAndCiKeepEveryLine) {
  EXPECT_FALSE(style_in(false, {{"TERM", "xterm"}}).rewrites_lines);
  for (const std::map<std::string, std::string>& environment :
       std::vector<std::map<std::string, std::string>>{
           {{"TERM", "dumb"}}, {}, {{"TERM", "xterm"}, {"CI", "true"}}}) {
    const TerminalStyle style = style_in(true, environment);
    EXPECT_FALSE(style.rewrites_lines);
    EXPECT_FALSE(style.has_colours);
  }
  EXPECT_TRUE(
      style_in(true, {{"TERM", "xterm"}, {"CI", "false"}}).rewrites_lines);
}

TEST(TerminalStyle, NoColorTakesTheColoursAlone) {
  const TerminalStyle style =
      style_in(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_TRUE(style.rewrites_lines);
  EXPECT_FALSE(style.has_colours);
  // https://no-color.org: NO_COLOR has an effect only if it is not empty.
  EXPECT_TRUE(
      style_in(true, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).has_colours);
}

TEST(TerminalStyle, TheFirstLocaleThatIsSetCounts) {
  EXPECT_FALSE(style_in(true, {}).is_unicode);
  EXPECT_FALSE(
      style_in(true, {{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}).is_unicode);
  EXPECT_TRUE(
      style_in(true, {{"LC_ALL", ""}, {"LC_CTYPE", "C.utf8"}}).is_unicode);
  EXPECT_FALSE(style_in(true, {{"LANG", "de_DE.ISO-8859-1"}}).is_unicode);
}

TEST(Painted, OnlyWhereThereAreColours) {
  EXPECT_EQ(painted("x", Colour::kRed, {.has_colours = true}),
            "\033[31mx\033[0m");
  EXPECT_EQ(painted("x", Colour::kRed, {}), "x");
  EXPECT_EQ(painted("", Colour::kRed, {.has_colours = true}), "");
}

TEST(CutLine, AtAWordToTheWidth) {
  const std::string line = "epoch 3/60  12/13  box 0.081 obj 0.033 cls 0.021";
  EXPECT_EQ(cut_line(line, 40, true),
            "epoch 3/60  12/13  box 0.081 obj 0.033…");
  EXPECT_EQ(cut_line(line, 11, true), "epoch 3/60…");
  EXPECT_EQ(cut_line(line, 4, true), "epo…");
  EXPECT_EQ(cut_line(line, 4, false), "epo~");
  EXPECT_EQ(cut_line(line, 48, true), line);
  EXPECT_EQ(cut_line(line, 0, true), line);
}

TEST(CutLine, CountsColumnsNotBytes) {
  EXPECT_EQ(cut_line("Äpfel", 5, true), "Äpfel");
  EXPECT_EQ(cut_line("自転車", 5, true), "自転…");
  EXPECT_EQ(display_width(cut_line("自転車", 4, true)), 3u);
}

}  // namespace
}  // namespace headroom
