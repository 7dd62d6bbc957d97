#include "worker/tools/tool_progress.h"

#include <gtest/gtest.h>

namespace headroom::tools {
namespace {

std::string told(bool is_terminal, double seconds_a_step) {
  std::string text;
  double now = 100;
  {
    ToolProgress progress({.is_terminal = is_terminal,
                           .write = [&](const std::string& s) { text += s; },
                           .now = [&] { return now; }});
    for (const char* what : {"train", "val"}) {
      for (int i = 0; i < 3; ++i) {
        now += seconds_a_step;
        progress.step(what, 3);
      }
    }
  }
  return text;
}

TEST(ToolProgress, OnATerminalIsOneLineThatGoesAway) {
  EXPECT_EQ(told(true, 0.06),
            "\rtrain: 2 of 3 images\x1b[K\rval: 1 of 3 images\x1b[K"
            "\rval: 3 of 3 images\x1b[K\r\x1b[K");
}

TEST(ToolProgress, ElsewhereIsALineNowAndThen) {
  EXPECT_EQ(told(false, 6),
            "train: 2 of 3 images\nval: 1 of 3 images\n"
            "val: 3 of 3 images\n");
  EXPECT_EQ(told(false, 0.5), "");
}

}  // namespace
}  // namespace headroom::tools
