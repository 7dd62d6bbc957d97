// Tests the MPI backend, with real processes under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

namespace headroom::collectives {
namespace {

constexpr const char* kPlugin = HEADROOM_BUILD_DIR "/bin/libheadroom_mpi.so";

// Returns the exit code and the output of a command.
std::pair<int, std::string> run_command(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  std::array<char, 4096> part;
  while (const size_t count = fread(part.data(), 1, part.size(), pipe)) {
    output.append(part.data(), count);
  }
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

// Runs rank_process under mpirun; it is killed after a minute.
std::pair<int, std::string> run_under_mpi(int size, const std::string& mode,
                                          const std::string& plugin = kPlugin) {
  return run_command("HEADROOM_MPI_PLUGIN='" + plugin +
                     "' timeout 60 '" HEADROOM_MPIRUN "' -np " +
                     std::to_string(size) +
                     " --oversubscribe --allow-run-as-root --bind-to none '" +
                     HEADROOM_RANK_PROCESS + "' mpi " + mode + " 2>&1");
}

class MpiCommunicatorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(HEADROOM_MPIRUN).empty()) {
      GTEST_SKIP() << "no mpirun, or built without MPI: install openmpi-bin "
                      "and libopenmpi-dev to run the tests of --backend mpi";
    }
  }
};

TEST_F(MpiCommunicatorTest, EveryCollectiveWorks) {
  for (const int size : {2, 3}) {
    const auto [code, output] = run_under_mpi(size, "check");
    EXPECT_EQ(code, 0) << output;
  }
}

TEST_F(MpiCommunicatorTest, AFailingRankEndsTheJob) {
  const auto [code, output] = run_under_mpi(2, "fail");
  EXPECT_NE(code, 0);
  EXPECT_NE(code, 124) << "hung";
  EXPECT_THAT(output, testing::HasSubstr("the last rank fails"));
}

TEST_F(MpiCommunicatorTest, AKilledRankEndsTheJob) {
  const auto [code, output] = run_under_mpi(2, "die");
  EXPECT_NE(code, 0);
  EXPECT_NE(code, 124) << "hung";
}

TEST_F(MpiCommunicatorTest, MoreRanksThanProcessesAreRefused) {
  const auto [code, output] = run_under_mpi(2, "crowd");
  EXPECT_NE(code, 0);
  EXPECT_THAT(output, testing::HasSubstr("started 2 processes"));
  EXPECT_THAT(output, testing::HasSubstr("world_size = 3"));
}

TEST_F(MpiCommunicatorTest, OnlyThePluginIsLinkedWithMpi) {
  const std::string needed = "readelf -W -d ";
  EXPECT_THAT(run_command(needed + kPlugin).second,
              testing::HasSubstr("[libmpi.so"));
  EXPECT_THAT(run_command(needed + HEADROOM_RANK_PROCESS).second,
              testing::AllOf(testing::HasSubstr("[libc10.so]"),
                             testing::Not(testing::HasSubstr("[libmpi"))));
}

TEST_F(MpiCommunicatorTest, APluginThatIsMissingIsRefusedInALine) {
  const auto [code, output] =
      run_under_mpi(1, "check", "/nowhere/libheadroom_mpi.so");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, testing::HasSubstr("built without MPI: there is no "
                                         "/nowhere/libheadroom_mpi.so"));
  EXPECT_THAT(output, testing::HasSubstr("--backend gloo"));
}

}  // namespace
}  // namespace headroom::collectives
