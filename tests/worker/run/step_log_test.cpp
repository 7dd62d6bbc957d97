#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "worker/run/results.h"
#include "worker/run/run_recorder.h"

namespace headroom::run {
namespace {

TEST(StepLog, AFileThatCannotBeReadIsNotCut) {
  const testing::TemporaryFolder folder;
  const std::string lines = "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n";
  const auto file = folder.write("steps.jsonl", lines);
  {
    const DescriptorLimit limit(/*more=*/0);
    EXPECT_THROW(StepLog(file, 3), Error);
  }
  EXPECT_EQ(folder.read("steps.jsonl"), lines);
  const StepLog log(file, 2);
  EXPECT_EQ(folder.read("steps.jsonl"), lines.substr(0, 22));
}

// In a folder of another user, or a copied one, a link may lead to any file.
TEST(StepLog, ALinkIsRefusedAndItsTargetKept) {
  const testing::TemporaryFolder folder;
  const std::string lines = "{\"step\":0}\n{\"step\":1}\n";
  folder.write("other.jsonl", lines);
  const auto file = folder.path() / "steps.jsonl";
  std::filesystem::create_symlink("other.jsonl", file);
  EXPECT_EQ(testing::refusal_of([&] { StepLog(file, 1); }, ExitCode::kResource),
            "[run] cannot read " + file.string() +
                " (it is a symbolic link, which is not followed here): check "
                "its disk and its permissions, or move it away");
  EXPECT_EQ(folder.read("other.jsonl"), lines);
  std::filesystem::remove(file);
  std::filesystem::create_symlink("none", file);
  EXPECT_THROW(StepLog(file, 0), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "none"));
}

TEST(Results, ALinkIsRefusedAndItsTargetKept) {
  const testing::TemporaryFolder folder;
  const std::string rows = "epoch,a\n0,1\n1,2\n";
  folder.write("other.csv", rows);
  const auto file = folder.path() / "results.csv";
  std::filesystem::create_symlink("other.csv", file);
  EXPECT_EQ(testing::refusal_of([&] { Results(folder.path(), 1); },
                                ExitCode::kResource),
            "[run] cannot read " + file.string() +
                " (it is a symbolic link, which is not followed here): its "
                "rows would be lost: check its disk and its permissions, or "
                "move it away");
  EXPECT_EQ(folder.read("other.csv"), rows);
  EXPECT_TRUE(std::filesystem::is_symlink(file));
}

}  // namespace
}  // namespace headroom::run
