#include "deploy/cli/process/socket_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "deploy/cli/process/file_descriptor.h"
#include "proto/channel_security.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

bool is_locked(const fs::path& folder) {
  const FileDescriptor opened(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0;
}

// Programs that start together check each other's folders, and lock each of
// them for a moment.
TEST(SocketFolder, IsLockedAlsoWhenOthersLookAtIt) {
  const testing::TemporaryFolder root;
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", root.path().c_str(), 1);
  std::atomic<int> without_lock = 0;
  {
    std::vector<std::jthread> programs;
    for (int program = 0; program < 16; ++program) {
      programs.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          const SocketFolder folder;
          const std::string address = folder.control_address();
          const fs::path socket =
              address.substr(std::string_view(wire::kUnixPrefix).size());
          if (!is_locked(socket.parent_path())) ++without_lock;
        }
      });
    }
  }
  EXPECT_EQ(without_lock, 0);
  if (before == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace headroom::cli
