#include "parallel/machine/shared_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "tests/support/forked_child.h"

namespace headroom {
namespace {

using testing::ForkedChild;

class SharedFiles : public ::testing::Test {
 protected:
  const std::unique_ptr<SharedFile> own_ = SharedFile::make("test");
  std::unique_ptr<SharedFile> opened() const {
    return SharedFile::open(own_->descriptor());
  }
};

TEST_F(SharedFiles, AChildSeesWhatItsParentWrites) {
  ASSERT_TRUE(own_->resize(10'000));
  EXPECT_EQ(ForkedChild([this] {
              return opened()->write(9'999, "x", 1) ? 0 : 1;
            }).wait(),
            0);
  const auto mapped = own_->map(0, 10'000);
  EXPECT_EQ(mapped.get()[9'999], std::byte{'x'});
  EXPECT_EQ(mapped.get()[0], std::byte{0});
}

TEST_F(SharedFiles, OnlyTheOwnerMayOpenIt) {
  struct stat status {};
  ASSERT_EQ(fstat(own_->descriptor(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(SharedFiles, AMappingOutlivesTheFile) {
  auto file = SharedFile::make("short");
  ASSERT_TRUE(file->write(0, "abc", 3));
  const auto mapped = file->map(0, 3);
  file.reset();
  EXPECT_EQ(std::memcmp(mapped.get(), "abc", 3), 0);
}

TEST_F(SharedFiles, AStrayWriteThroughAMappingEndsTheProcess) {
  ASSERT_TRUE(own_->resize(100));
  EXPECT_EQ(ForkedChild([this] {
              own_->map(0, 100).get()[5] = std::byte{1};
              return 0;
            }).wait(),
            -SIGSEGV);
}

TEST_F(SharedFiles, ASealedFileKeepsItsSize) {
  ASSERT_TRUE(own_->resize(8192));
  EXPECT_FALSE(own_->is_sealed());
  ASSERT_TRUE(own_->seal());
  EXPECT_TRUE(opened()->is_sealed());
  EXPECT_FALSE(opened()->resize(0));
  EXPECT_FALSE(opened()->resize(9000));
  EXPECT_TRUE(own_->write(100, "x", 1)) << "its content may change";
  EXPECT_TRUE(opened()->clear());
  EXPECT_EQ(own_->map(0, 8192).get()[100], std::byte{0});
  EXPECT_EQ(own_->size(), 8192u);
}

TEST_F(SharedFiles, ALockKeepsOthersWaiting) {
  std::optional<SharedFile::Lock> lock(*own_);
  std::atomic<bool> has_lock = false;
  std::thread other([&] {
    const auto file = opened();
    const SharedFile::Lock waits(*file);
    has_lock = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_lock);
  lock.reset();
  other.join();
  EXPECT_TRUE(has_lock);
}

TEST_F(SharedFiles, AKilledProcessReleasesItsLockAndItsUse) {
  ASSERT_TRUE(own_->resize(1));
  ForkedChild child([this] {
    const auto file = opened();
    const SharedFile::Lock lock(*file);
    file->begin_use();
    file->write(0, "x", 1);
    pause();
    return 0;
  });
  const auto mapped = own_->map(0, 1);
  while (*mapped.get() == std::byte{0}) std::this_thread::yield();
  EXPECT_TRUE(own_->has_other_users());
  child.kill();
  const SharedFile::Lock lock(*own_);
  EXPECT_FALSE(own_->has_other_users());
}

TEST_F(SharedFiles, UsersAreCountedOncePerOpening) {
  ASSERT_TRUE(own_->begin_use());
  EXPECT_FALSE(own_->has_other_users());
  auto other = opened();
  EXPECT_TRUE(other->has_other_users());
  ASSERT_TRUE(other->begin_use());
  EXPECT_TRUE(own_->has_other_users());
  other.reset();
  EXPECT_FALSE(own_->has_other_users());
}

TEST(SharedFileOpen, ADescriptorThatIsNotOpenIsAnError) {
  EXPECT_EQ(SharedFile::open(9999), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace headroom
