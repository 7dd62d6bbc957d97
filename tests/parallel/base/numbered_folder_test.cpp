#include "parallel/base/numbered_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace headroom {
namespace {

namespace fs = std::filesystem;

class NumberedFolders : public ::testing::Test {
 protected:
  NumberedFolders() { fs::remove_all(root_); }
  ~NumberedFolders() override { fs::remove_all(root_); }
  const fs::path root_ = fs::path(::testing::TempDir()) /
                         ("numbered-" + std::to_string(::getpid()));
};

TEST_F(NumberedFolders, CountFromTwo) {
  const fs::path base = root_ / "runs" / "exp";
  EXPECT_EQ(free_folder_name(base), base);
  EXPECT_EQ(make_free_folder(base), base);
  EXPECT_EQ(free_folder_name(base), root_ / "runs" / "exp2");
  EXPECT_EQ(make_free_folder(base), root_ / "runs" / "exp2");
  EXPECT_EQ(make_free_folder(base), root_ / "runs" / "exp3");
  fs::remove(root_ / "runs" / "exp2");
  EXPECT_EQ(make_free_folder(base), root_ / "runs" / "exp2");
}

TEST_F(NumberedFolders, ADanglingLinkIsTaken) {
  fs::create_directories(root_);
  fs::create_symlink(root_ / "nowhere", root_ / "exp");
  EXPECT_EQ(make_free_folder(root_ / "exp"), root_ / "exp2");
}

TEST_F(NumberedFolders, AreNotGivenTwice) {
  std::vector<fs::path> made(8);
  std::vector<std::thread> threads;
  for (fs::path& one : made) {
    threads.emplace_back([&] { one = make_free_folder(root_ / "exp"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<fs::path>(made.begin(), made.end()).size(), made.size());
}

}  // namespace
}  // namespace headroom
