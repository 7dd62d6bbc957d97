#include "parallel/base/memory_category.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

constexpr auto kWorkspace = MemoryCategory::kWorkspace;
constexpr auto kActivations = MemoryCategory::kActivations;

TEST(WorkspaceScope, CountsMemoryThatADevicesLibraryTakesBetweenResults) {
  const MemoryCategoryScope around(kActivations);
  const WorkspaceScope call(/*result_bytes=*/100, /*other_result_bytes=*/10);
  EXPECT_EQ(call.workspace_bytes(), 0);
  EXPECT_EQ(MemoryCategoryScope::of_device(100), kActivations);
  EXPECT_EQ(MemoryCategoryScope::of_device(30), kWorkspace);
  EXPECT_EQ(call.workspace_bytes(), 30);
  EXPECT_EQ(MemoryCategoryScope::of_device(10), kActivations);
  EXPECT_EQ(MemoryCategoryScope::of_device(20), kWorkspace);
  EXPECT_EQ(call.workspace_bytes(), 30);
  EXPECT_EQ(MemoryCategoryScope::of_device(15), kWorkspace);
  EXPECT_EQ(call.workspace_bytes(), 35);
}

TEST(WorkspaceScope, MemoryTakenBeforeTheFirstResultMayStay) {
  const WorkspaceScope call(100, 10);
  MemoryCategoryScope::of_device(7);
  MemoryCategoryScope::of_device(100);
  MemoryCategoryScope::of_device(30);
  MemoryCategoryScope::of_device(10);
  MemoryCategoryScope::of_device(20);
  EXPECT_EQ(call.workspace_bytes(), 37);
}

// A device's scope does not count host memory, and the scopes do not affect
// each other.
TEST(WorkspaceScope, CountsNothingElse) {
  {
    const WorkspaceScope before(1);
    MemoryCategoryScope::of_device(1 << 20);
  }
  const WorkspaceScope call(100);
  EXPECT_EQ(MemoryCategoryScope::of(50), kWorkspace);
  EXPECT_EQ(call.workspace_bytes(), 0);
  {
    const MemoryCategoryScope inside(kActivations);
    MemoryCategoryScope::of_device(60);
  }
  EXPECT_EQ(call.workspace_bytes(), 0);
}

}  // namespace
}  // namespace headroom
