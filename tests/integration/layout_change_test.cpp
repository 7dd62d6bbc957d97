// A checkpoint belongs to no layout: a run that was stopped continues under
// another one, and its next step is the one that one process would take from
// the same state.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRun = "runs/train/exp";

// The steps of the run in `folder` once it was resumed for one more.
std::vector<Json> resume_for_a_step(const fs::path& folder,
                                    std::vector<std::string> layout,
                                    size_t steps) {
  std::vector<std::string> more = {"--resume", (folder / kRun).string(),
                                   "--max-steps", std::to_string(steps)};
  more.insert(more.end(), layout.begin(), layout.end());
  return train_in(folder, {program("headroom"), "train"}, more);
}

TEST(LayoutChange, TheNextStepIsThatOfOneProcessFromTheSameState) {
  const std::vector<std::string> alone = {"--layout", "data=1", "--processes",
                                          "1",        "--zero", "0"};
  const std::vector<std::vector<std::string>> layouts = {
      {"--layout", "data=2", "--processes", "2"},
      {"--layout", "pipeline=2", "--processes", "2"},
      {"--layout", "spatial=2", "--processes", "2"},
      {"--layout", "data=2", "--processes", "2", "--zero", "3"},
      alone,
  };
  const fs::path folder = fresh_folder();
  const fs::path changing = folder / "changing";
  // The checkpoint is written inside an epoch, with gradients accumulated.
  size_t steps = 3;
  std::vector<std::string> first = layouts[0];
  first.insert(first.end(), {"--max-steps", std::to_string(steps)});
  ASSERT_EQ(train_in(changing, train_fp64("8"), first).size(), steps);
  for (size_t i = 1; i < layouts.size(); ++i) {
    SCOPED_TRACE(layouts[i][1]);
    const fs::path reference = folder / ("reference" + std::to_string(i));
    fs::copy(changing, reference, fs::copy_options::recursive);
    ++steps;
    const auto one = resume_for_a_step(reference, alone, steps);
    const auto other = resume_for_a_step(changing, layouts[i], steps);
    ASSERT_EQ(one.size(), steps);
    ASSERT_EQ(other.size(), steps);
    for (const char* key : {"loss", "box", "obj", "cls", "grad_norm"}) {
      EXPECT_LT(relative(one.back(), other.back(), key), 1e-9) << key;
    }
    EXPECT_EQ(one.back().at("samples"), other.back().at("samples"));
    EXPECT_EQ(one.back().at("lr"), other.back().at("lr"));
    EXPECT_EQ(other.back().at("memory").size(), layouts[i] == alone ? 1u : 2u);
  }
}

}  // namespace
}  // namespace headroom::testing
