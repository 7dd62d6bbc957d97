#include "deploy/cli/process/launcher_environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"

namespace headroom::cli {
namespace {

Environment open_mpi(int rank, int size, int local_rank, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"PMIX_NAMESPACE", "1557331969"},
          {"OMPI_MCA_orte_precondition_transports", "3bb8bf56-d47b9d52"}};
}

std::string refusal(const Environment& environment) {
  try {
    launcher_place(environment);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LauncherEnvironment, OutsideALauncherThereIsNoPlace) {
  EXPECT_FALSE(launcher_place({}));
  EXPECT_FALSE(launcher_place({{"HOME", "/root"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(LauncherEnvironment, OpenMpi) {
  const auto place = launcher_place(open_mpi(3, 4, 1, 2));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "mpirun");
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->job_id, "1557331969-3bb8bf56-d47b9d52");
  EXPECT_FALSE(place->one_host());
  EXPECT_TRUE(launcher_place(open_mpi(1, 2, 1, 2))->one_host());
}

TEST(LauncherEnvironment, SlurmCountsTheTasksOfItsOwnNode) {
  Environment environment = {{"SLURM_PROCID", "5"},
                             {"SLURM_NTASKS", "7"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_NODEID", "2"},
                             {"SLURM_JOB_ID", "812"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
  const auto place = launcher_place(environment);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->launcher, "srun");
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->job_id, "812-0");

  environment["SLURM_PROCID"] = "6";
  environment["SLURM_LOCALID"] = "0";
  environment["SLURM_NODEID"] = "3";
  EXPECT_EQ(launcher_place(environment)->local_size, 1);

  environment["SLURM_NODEID"] = "4";
  EXPECT_EQ(refusal(environment),
            "[launcher] SLURM_STEP_TASKS_PER_NODE='2(x3),1' does not list this "
            "node's tasks: start through srun");
}

TEST(LauncherEnvironment, TheScriptOfABatchJobIsNoTask) {
  const Environment batch = {{"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "0"}};
  EXPECT_FALSE(launcher_place(batch));
  Environment with_step = batch;
  with_step["SLURM_STEP_ID"] = "4294967291";  // the batch step's own number
  EXPECT_FALSE(launcher_place(with_step));
}

TEST(LauncherEnvironment, PmiWithAndWithoutPlacesOnTheHost) {
  Environment environment = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "a b/c"}};
  EXPECT_FALSE(launcher_place(environment)->one_host());
  EXPECT_EQ(launcher_place(environment)->job_id, "a_b_c");
  environment["MPI_LOCALRANKID"] = "1";
  environment["MPI_LOCALNRANKS"] = "2";
  EXPECT_TRUE(launcher_place(environment)->one_host());
}

TEST(LauncherEnvironment, MpirunInsideASlurmJobCounts) {
  Environment environment = open_mpi(0, 2, 0, 2);
  environment["SLURM_PROCID"] = "0";
  environment["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(launcher_place(environment)->launcher, "mpirun");
}

TEST(LauncherEnvironment, NonsenseIsRefused) {
  Environment environment = open_mpi(0, 2, 0, 2);
  environment["OMPI_COMM_WORLD_SIZE"] = "two";
  EXPECT_EQ(refusal(environment),
            "[launcher] OMPI_COMM_WORLD_SIZE='two' is no number of a process: "
            "start through mpirun or srun, or unset that variable");
  EXPECT_EQ(refusal(open_mpi(2, 2, 0, 2)),
            "[launcher] mpirun says rank 2 of 2, local rank 0 of 2: these "
            "contradict each other: unset the variables of one launcher");
}

LauncherPlace place_of(int rank) {
  LauncherPlace place;
  place.rank = rank;
  place.size = 2;
  return place;
}

TEST(ExitCodeOfLeaver, OnlyAPodIsReplacedAndMpirunSeesNoFailure) {
  EXPECT_EQ(exit_code_of_leaver({}), 0);
  const Environment pod = {{"JOB_COMPLETION_INDEX", "1"}};
  EXPECT_EQ(exit_code_of_leaver(pod), 130);
  // Kubeflow's pods name their rank as a launcher does.
  Environment trainer = pod;
  trainer["PMI_RANK"] = "1";
  EXPECT_EQ(exit_code_of_leaver(trainer), 130);
  Environment mpirun = pod;
  mpirun["OMPI_COMM_WORLD_RANK"] = "1";
  EXPECT_EQ(exit_code_of_leaver(mpirun), 0);
  Environment srun = pod;
  srun["SLURM_PROCID"] = "1";
  srun["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(exit_code_of_leaver(srun), 0);
}

TEST(WaitForRankZero, RankZeroWaitsForNobody) {
  EXPECT_FALSE(wait_for_rank_zero(place_of(0), std::chrono::hours(1)));
}

// Interrupts count until a process ends: these waits have a program of their
// own, whatever ran before.
TEST(WaitForRankZero, AnInterruptEndsTheWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, SIG_DFL);
        interrupts::install();
        const interrupts::Watch watch;
        std::thread launcher([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          kill(getpid(), SIGTERM);
        });
        const bool happened =
            wait_for_rank_zero(place_of(1), std::chrono::hours(1));
        launcher.join();
        std::_Exit(happened ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(WaitForRankZero, PatienceEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        interrupts::install();
        const bool happened =
            wait_for_rank_zero(place_of(1), std::chrono::milliseconds(20));
        std::_Exit(happened ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headroom::cli
