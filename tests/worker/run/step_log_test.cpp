#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/temporary_folder.h"
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

}  // namespace
}  // namespace headroom::run
