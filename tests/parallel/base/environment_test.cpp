#include "parallel/base/environment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace headroom {
namespace {

TEST(UsersEnvironment, HasTheLibraryPathFromBeforeTheLauncher) {
  ::setenv("LD_LIBRARY_PATH", "/ours:/theirs", 1);
  EXPECT_EQ(users_environment(), process_environment());
  ::setenv("HEADROOM_FORMER_LIBRARY_PATH", "/theirs", 1);
  EXPECT_EQ(users_environment()["LD_LIBRARY_PATH"], "/theirs");
  ::setenv("HEADROOM_FORMER_LIBRARY_PATH", "", 1);
  const Environment users = users_environment();
  EXPECT_FALSE(users.contains("LD_LIBRARY_PATH"));
  EXPECT_FALSE(users.contains("HEADROOM_FORMER_LIBRARY_PATH"));
  EXPECT_EQ(users.size() + 2, process_environment().size());
  ::unsetenv("HEADROOM_FORMER_LIBRARY_PATH");
  ::unsetenv("LD_LIBRARY_PATH");
}

}  // namespace
}  // namespace headroom
