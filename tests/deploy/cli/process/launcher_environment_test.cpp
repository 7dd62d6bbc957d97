#include "deploy/cli/process/launcher_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"
#include "tests/support/refusal.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

// A machine on which only the file `path` can be read; it contains `text`.
LauncherMachine machine(const std::string& name, const std::string& path = "",
                        const std::string& text = "") {
  return {.name = name,
          .read = [=](const std::string& asked) -> std::optional<std::string> {
            if (path.empty() || asked != path) return std::nullopt;
            return text;
          }};
}

// Parses "A=1;B=2"; a value cannot contain ';'.
Environment variables(const std::string& list) {
  Environment environment;
  std::istringstream in(list);
  for (std::string entry; std::getline(in, entry, ';');) {
    const size_t equals = entry.find('=');
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return environment;
}

std::string refusal(const Environment& environment,
                    const LauncherMachine& where = machine("here")) {
  return testing::refusal_of([&] { read_launcher(environment, where); });
}

// The variables that a launcher documents, and the job that must be read from
// them; by default this is the second of two agents.
struct Documented {
  std::string name = {};  // the name of a row in launchers()
  std::string variables = {};
  LauncherMachine where = machine("here");
  int rank = 1;
  int size = 2;
  std::string coordinator = {};
  int local_rank = 0;
  int local_size = 1;
  int workers = 0;
  std::string job_id = {};
  std::string error_file = {};
  int exit_code_of_leaver = 0;
};

const std::string kTorchrun =
    "RANK=5;WORLD_SIZE=8;LOCAL_RANK=1;LOCAL_WORLD_SIZE=4;GROUP_RANK=1;"
    "GROUP_WORLD_SIZE=2;ROLE_RANK=5;ROLE_NAME=default;ROLE_WORLD_SIZE=8;"
    "MASTER_ADDR=10.0.0.5;MASTER_PORT=29500;TORCHELASTIC_RESTART_COUNT=0;"
    "TORCHELASTIC_MAX_RESTARTS=3;TORCHELASTIC_RUN_ID=none;"
    "TORCHELASTIC_USE_AGENT_STORE=True;"
    "TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_a/none_b/attempt_0/1/error.json";

const std::string kSlurm =
    "SLURM_PROCID=1;SLURM_NTASKS=2;SLURM_LOCALID=0;SLURM_NODEID=1;"
    "SLURM_JOB_ID=812;SLURM_STEP_ID=0;SLURM_STEP_TASKS_PER_NODE=1(x2)";

const std::string kFlux =
    "FLUX_TASK_RANK=3;FLUX_TASK_LOCAL_ID=1;FLUX_JOB_SIZE=4;FLUX_JOB_NNODES=2;"
    "FLUX_JOB_ID=f23";

const std::vector<Documented>& documented() {
  static const std::vector<Documented> all = {
      {.name = "torchrun",
       .variables = kTorchrun,
       .coordinator = "10.0.0.5:30500",
       .workers = 4,
       .error_file = "/tmp/torchelastic_a/none_b/attempt_0/1/error.json"},
      {.name = "mpirun",
       .variables = "OMPI_COMM_WORLD_RANK=3;OMPI_COMM_WORLD_SIZE=4;"
                    "OMPI_COMM_WORLD_LOCAL_RANK=1;"
                    "OMPI_COMM_WORLD_LOCAL_SIZE=2;PMIX_NAMESPACE=1557331969;"
                    "PMIX_RANK=3;OMPI_MCA_orte_precondition_transports="
                    "3bb8bf56-d47b9d52",
       .rank = 3,
       .size = 4,
       .local_rank = 1,
       .local_size = 2,
       .job_id = "1557331969-3bb8bf56-d47b9d52"},
      {.name = "mpiexec",
       .variables = "PMI_RANK=1;PMI_SIZE=2;MPI_LOCALRANKID=1;"
                    "MPI_LOCALNRANKS=2;PMI_JOBID=a b/c",
       .local_rank = 1,
       .local_size = 2,
       .job_id = "a_b_c"},
      {.name = "flux run",
       .variables = kFlux + ";PMI_RANK=3;PMI_SIZE=4;PMI_FD=9",
       .rank = 3,
       .size = 4,
       .local_rank = 1,
       .local_size = 2,
       .job_id = "f23"},
      {.name = "srun", .variables = kSlurm, .job_id = "812-0"},
      // The environment of srun --mpi=pmix.
      {.name = "srun",
       .variables = kSlurm + ";PMIX_RANK=1;PMIX_NAMESPACE=slurm.pmix.812.0",
       .job_id = "812-0"},
      {.name = "srun",
       .variables = kSlurm + ";SLURM_GPUS_PER_TASK=h100:2",
       .workers = 2,
       .job_id = "812-0"},
      // The environment of srun --mpi=pmi2.
      {.name = "srun",
       .variables = kSlurm + ";PMI_RANK=1;PMI_SIZE=2",
       .job_id = "812-0"},
      {.name = "Kubeflow Trainer",
       .variables = "PET_NNODES=2;PET_NPROC_PER_NODE=4;PET_NODE_RANK=1;"
                    "PET_MASTER_ADDR=job-node-0-0.job;PET_MASTER_PORT=29500;"
                    "JOB_COMPLETION_INDEX=1",
       .coordinator = "job-node-0-0.job:29500",
       .workers = 4,
       .exit_code_of_leaver = 130},
      {.name = "Kubeflow Trainer",
       .variables = "PET_NNODES=2;PET_NPROC_PER_NODE=auto;PET_NODE_RANK=1;"
                    "PET_MASTER_ADDR=job-node-0-0.job;PET_MASTER_PORT=29500",
       .coordinator = "job-node-0-0.job:29500",
       .exit_code_of_leaver = 130},
      {.name = "PyTorchJob",
       .variables = "MASTER_ADDR=job-master-0;MASTER_PORT=23456;WORLD_SIZE=2;"
                    "RANK=1",
       .coordinator = "job-master-0:23456",
       .exit_code_of_leaver = 130},
      // Volcano's plugin pytorch sets the variables of its plugins svc and env
      // too.
      {.name = "PyTorchJob",
       .variables = "MASTER_ADDR=job-master-0.job;MASTER_PORT=23456;"
                    "WORLD_SIZE=2;RANK=1;VC_TASK_INDEX=0;"
                    "VC_MASTER_HOSTS=job-master-0.job;"
                    "VC_WORKER_HOSTS=job-worker-0.job",
       .where = machine("job-worker-0"),
       .coordinator = "job-master-0.job:23456",
       .exit_code_of_leaver = 130},
      {.name = "Lightning",
       .variables = "MASTER_ADDR=10.0.0.5;MASTER_PORT=1234;WORLD_SIZE=2;"
                    "NODE_RANK=1",
       .coordinator = "10.0.0.5:1234"},
      {.name = "Volcano",
       .variables = "VC_TASK_INDEX=1;VK_TASK_INDEX=1;VC_PS_NUM=1;"
                    "VC_PS_HOSTS=job-ps-0.job;VC_WORKER_NUM=2;"
                    "VC_WORKER_HOSTS=job-worker-0.job,job-worker-1.job",
       .where = machine("job-worker-1"),
       .coordinator = "job-worker-0.job:29500",
       .exit_code_of_leaver = 130},
      {.name = "SkyPilot",
       .variables = "SKYPILOT_NODE_RANK=1;SKYPILOT_NUM_NODES=2;"
                    "SKYPILOT_NUM_GPUS_PER_NODE=8;SKYPILOT_NODE_IPS=10.0.0.5\n"
                    "10.0.0.6;SKYPILOT_TASK_ID=sky-2026-11-27_t-1",
       .coordinator = "10.0.0.5:29500",
       .workers = 8},
      {.name = "AWS Batch",
       .variables = "AWS_BATCH_JOB_ID=5f#1;AWS_BATCH_JOB_NODE_INDEX=1;"
                    "AWS_BATCH_JOB_NUM_NODES=2;AWS_BATCH_JOB_MAIN_NODE_INDEX=0;"
                    "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.5",
       .coordinator = "10.0.0.5:29500"},
      {.name = "AWS Batch",
       .variables = "AWS_BATCH_JOB_ID=5f#2;AWS_BATCH_JOB_NODE_INDEX=2;"
                    "AWS_BATCH_JOB_NUM_NODES=3;AWS_BATCH_JOB_MAIN_NODE_INDEX=2",
       .rank = 0,
       .size = 3,
       .coordinator = ":29500"},
      {.name = "SageMaker",
       .variables = "SM_HOSTS=[\"algo-1\",\"algo-2\"];SM_CURRENT_HOST=algo-2;"
                    "SM_NUM_GPUS=8;TRAINING_JOB_NAME=job-7",
       .coordinator = "algo-1:29500",
       .workers = 8,
       .error_file = "/opt/ml/output/failure"},
      // The image does not have SageMaker's Python toolkit.
      {.name = "SageMaker",
       .variables = "TRAINING_JOB_NAME=job-7;TRAINING_JOB_ARN=arn:aws:x",
       .where =
           machine("ip-10-0-0-6", "/opt/ml/input/config/resourceconfig.json",
                   R"({"current_host":"algo-2","hosts":["algo-1","algo-2"],
                            "network_interface_name":"eth0"})"),
       .coordinator = "algo-1:29500",
       .error_file = "/opt/ml/output/failure"},
      {.name = "PBS",
       .variables = "PBS_JOBID=12.pbs;PBS_NODEFILE=/aux/12.pbs;PBS_NODENUM=1;"
                    "PBS_TASKNUM=2;PBS_ENVIRONMENT=PBS_BATCH",
       .where = machine("b", "/aux/12.pbs", "a\na\nb\nb\n"),
       .coordinator = "a:29500"},
      {.name = "LSF",
       .variables = "LSB_JOBID=31;LSB_MCPU_HOSTS=a 4 b 4;LSB_HOSTS=a a b b",
       .where = machine("b.cluster"),
       .coordinator = "a:29500"},
      {.name = "Indexed Job",
       .variables = "JOB_COMPLETION_INDEX=1",
       .size = 1,
       .exit_code_of_leaver = 130},
  };
  return all;
}

TEST(ReadLauncher, EachDocumentedEnvironmentIsItsRow) {
  for (const Documented& expected : documented()) {
    SCOPED_TRACE(expected.name + ": " + expected.variables);
    const auto job =
        read_launcher(variables(expected.variables), expected.where);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->launcher->name, expected.name);
    EXPECT_EQ(job->place.rank, expected.rank);
    EXPECT_EQ(job->place.size, expected.size);
    EXPECT_EQ(job->place.local_rank, expected.local_rank);
    EXPECT_EQ(job->place.local_size, expected.local_size);
    EXPECT_EQ(job->place.workers, expected.workers);
    EXPECT_EQ(job->place.job_id, expected.job_id);
    EXPECT_EQ(job->coordinator, expected.coordinator);
    EXPECT_EQ(job->error_file, expected.error_file);
    EXPECT_EQ(job->exit_code_of_leaver(), expected.exit_code_of_leaver);
    EXPECT_EQ(job->has_size, expected.name != "Indexed Job");
  }
}

TEST(ReadLauncher, EachRowIsDocumentedHereAndInTheGuide) {
  std::set<std::string> tested = {"PMIx"};  // has a test of its own
  for (const Documented& one : documented()) tested.insert(one.name);
  std::ifstream file(HEADROOM_SOURCE_DIR "/deploy/guide/many_cards.md");
  std::ostringstream guide;
  guide << file.rdbuf();
  for (const Launcher& row : launchers()) {
    EXPECT_TRUE(tested.contains(std::string(row.name))) << row.name;
    EXPECT_THAT(guide.str(), HasSubstr("| " + std::string(row.name) + " |"))
        << row.name;
  }
}

TEST(ReadLauncher, OutsideALauncherThereIsNoJob) {
  for (const char* list : {
           "HOME=/root",
           "SLURM_JOB_ID=7",
           // The script of a Slurm batch job has a step number of its own.
           "SLURM_PROCID=0;SLURM_NTASKS=8;SLURM_LOCALID=0;SLURM_NODEID=0",
           "SLURM_PROCID=0;SLURM_NTASKS=8;SLURM_STEP_ID=4294967291",
           "VC_TASK_INDEX=3;VK_TASK_INDEX=3",
           "MASTER_ADDR=10.0.0.5;MASTER_PORT=29500",
           "RANK=0;LOCAL_RANK=0;WORLD_SIZE=1",
       }) {
    EXPECT_FALSE(read_launcher(variables(list), machine("here"))) << list;
  }
}

TEST(ReadLauncher, SlurmCountsTheTasksOfItsOwnNode) {
  const std::string five =
      "SLURM_NTASKS=7;SLURM_JOB_ID=8;SLURM_STEP_ID=0;"
      "SLURM_STEP_TASKS_PER_NODE=2(x3),1;SLURM_LOCALID=";
  const auto local_size = [&](const std::string& more) {
    return read_launcher(variables(five + more))->place.local_size;
  };
  EXPECT_EQ(local_size("1;SLURM_PROCID=5;SLURM_NODEID=2"), 2);
  EXPECT_EQ(local_size("0;SLURM_PROCID=6;SLURM_NODEID=3"), 1);
  EXPECT_EQ(refusal(variables(five + "0;SLURM_PROCID=6;SLURM_NODEID=4")),
            "[launcher] srun: SLURM_STEP_TASKS_PER_NODE='2(x3),1' does not "
            "list the tasks of this machine, SLURM_NODEID='4': start through "
            "srun anew, or alone: unset SLURM_PROCID");
}

TEST(ReadLauncher, TheInnermostCountsAndTheOthersAreNamed) {
  const std::string open_mpi =
      "OMPI_COMM_WORLD_RANK=0;OMPI_COMM_WORLD_SIZE=2;"
      "OMPI_COMM_WORLD_LOCAL_RANK=0;OMPI_COMM_WORLD_LOCAL_SIZE=2";
  struct Case {
    std::string list;
    std::string text;
  };
  for (const Case& one : std::vector<Case>{
           {open_mpi + ";" + kSlurm,
            "mpirun inside srun: mpirun's variables count"},
           {kTorchrun + ";" + kSlurm,
            "torchrun inside srun: torchrun's variables count"},
           {kTorchrun + ";SKYPILOT_NODE_RANK=1;SKYPILOT_NUM_NODES=2;"
                        "SKYPILOT_NODE_IPS=10.0.0.5\n10.0.0.6",
            "torchrun inside SkyPilot: torchrun's variables count"},
           {kTorchrun + ";PET_NNODES=2;PET_NODE_RANK=1;JOB_COMPLETION_INDEX=1",
            "torchrun inside Kubeflow Trainer: torchrun's variables count"},
           {kSlurm + ";PMI_RANK=1;PMI_SIZE=2", ""},
           // mpiexec inside a task has its own ranks.
           {kSlurm + ";PMI_RANK=3;PMI_SIZE=4",
            "mpiexec inside srun: mpiexec's variables count"},
       }) {
    EXPECT_EQ(read_launcher(variables(one.list))->around_text(), one.text)
        << one.list;
  }
}

TEST(ReadLauncher, ContradictionsAreRefusedWithVariableValueAndRemedy) {
  struct Case {
    std::string list;
    std::string text;
  };
  const std::string torchrun =
      ": start through torchrun anew, or alone: unset RANK";
  const auto with = [](const std::string& list) {
    return kTorchrun + ";" + list;
  };
  for (const Case& one : std::vector<Case>{
           {with("GROUP_RANK=2"),
            "torchrun: GROUP_RANK='2' and GROUP_WORLD_SIZE='2' contradict each "
            "other: ranks go from 0 to 1" +
                torchrun},
           {with("LOCAL_RANK=4"),
            "torchrun: LOCAL_RANK='4' and LOCAL_WORLD_SIZE='4' contradict each "
            "other: ranks go from 0 to 3" +
                torchrun},
           {with("GROUP_WORLD_SIZE=two"),
            "torchrun: GROUP_WORLD_SIZE='two' is no whole number from 0 to "
            "1048576" +
                torchrun},
           {with("GROUP_WORLD_SIZE=0"),
            "torchrun: GROUP_WORLD_SIZE='0' is no number of processes" +
                torchrun},
           {with("MASTER_ADDR="),
            "torchrun: MASTER_ADDR, the address of rank 0's machine, is "
            "missing" +
                torchrun},
           {with("MASTER_ADDR=a b"),
            "torchrun: MASTER_ADDR='a b' is no address" + torchrun},
           {with("MASTER_PORT=99999"),
            "torchrun: MASTER_PORT='99999' is no port from 1 to 65535" +
                torchrun},
           {"PMIX_RANK=3;PMIX_NAMESPACE=prterun-1",
            "PMIx: PMIX_RANK='3' names a rank, and no variable says how many "
            "there are: start through PMIx anew, or alone: unset PMIX_RANK"},
           {"PMI_RANK=1",
            "mpiexec: PMI_RANK is set and PMI_SIZE is missing: start through "
            "mpiexec anew, or alone: unset PMI_RANK"},
           {"OMPI_COMM_WORLD_RANK=2;OMPI_COMM_WORLD_SIZE=2;"
            "OMPI_COMM_WORLD_LOCAL_RANK=0;OMPI_COMM_WORLD_LOCAL_SIZE=2",
            "mpirun: OMPI_COMM_WORLD_RANK='2' and OMPI_COMM_WORLD_SIZE='2' "
            "contradict each other: ranks go from 0 to 1: start through mpirun "
            "anew, or alone: unset OMPI_COMM_WORLD_RANK"},
           {"FLUX_TASK_RANK=0;FLUX_TASK_LOCAL_ID=0;FLUX_JOB_SIZE=3;"
            "FLUX_JOB_NNODES=2",
            "flux run: FLUX_JOB_SIZE='3' processes on FLUX_JOB_NNODES='2' "
            "machines: not the same number on each: start through flux run "
            "anew, or alone: unset FLUX_TASK_RANK"},
           {"SKYPILOT_NODE_RANK=0;SKYPILOT_NUM_NODES=2;"
            "SKYPILOT_NODE_IPS=10.0.0.5",
            "SkyPilot: SKYPILOT_NODE_IPS lists 1 machines, and "
            "SKYPILOT_NUM_NODES='2': start through SkyPilot anew, or alone: "
            "unset SKYPILOT_NODE_RANK"},
           {"AWS_BATCH_JOB_NODE_INDEX=1;AWS_BATCH_JOB_NUM_NODES=2;"
            "AWS_BATCH_JOB_MAIN_NODE_INDEX=0",
            "AWS Batch: AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS, the "
            "address of rank 0's machine, is missing: start through AWS Batch "
            "anew, or alone: unset AWS_BATCH_JOB_NODE_INDEX"},
           {"SM_HOSTS=[\"algo-1\"];SM_CURRENT_HOST=algo-2",
            "SageMaker: SM_HOSTS='[\"algo-1\"]' does not name this machine, "
            "algo-2: start through SageMaker anew, or alone: unset SM_HOSTS"},
           {"SM_HOSTS=algo-1;SM_CURRENT_HOST=algo-1",
            "SageMaker: SM_HOSTS='algo-1' lists no machine: start through "
            "SageMaker anew, or alone: unset SM_HOSTS"},
           {"PBS_JOBID=1;PBS_NODEFILE=/aux/1;PBS_NODENUM=1",
            "PBS: PBS_NODEFILE='/aux/1' cannot be read on here: copy it to a "
            "shared folder and start with PBS_NODEFILE=COPY in the "
            "environment"},
           {"LSB_JOBID=1;LSB_MCPU_HOSTS=a 4 b",
            "LSF: LSB_MCPU_HOSTS='a 4 b' is no list of names and numbers: "
            "start through LSF anew, or alone: unset LSB_JOBID"},
           {"VC_TASK_INDEX=0;VC_PS_HOSTS=j-ps-0.j;VC_WORKER_HOSTS=j-worker-0.j",
            "Volcano: VC_PS_HOSTS, VC_WORKER_HOSTS: none lists this pod, here: "
            "start through Volcano anew, or alone: unset VC_TASK_INDEX"},
           {"RANK=1;LOCAL_RANK=1;WORLD_SIZE=2;MASTER_ADDR=a;MASTER_PORT=1",
            "RANK, LOCAL_RANK and WORLD_SIZE='2' are set and GROUP_RANK is "
            "not, so nothing tells which processes share a machine: start "
            "through torchrun, or alone: unset RANK"},
           {"PET_NNODES=2;PET_RDZV_ENDPOINT=job:29400",
            "PET_RDZV_ENDPOINT is set, as by an elastic PyTorchJob, and "
            "nothing tells this machine's rank, which torchrun agrees upon: "
            "start torchrun --no-python headroom train ..., or alone: unset "
            "PET_RDZV_ENDPOINT"},
       }) {
    EXPECT_EQ(refusal(variables(one.list)), "[launcher] " + one.text)
        << one.list;
  }
}

TEST(ReadLauncher, TorchrunsOtherLocalRanksWaitAndItsRestartsAreCounted) {
  const auto job = read_launcher(variables(kTorchrun), machine("here"));
  EXPECT_EQ(job->local_worker, 1);
  EXPECT_EQ(job->local_workers, 4);
  EXPECT_EQ(job->restarts, 0);
  EXPECT_EQ(job->starter, "here:/tmp/torchelastic_a/none_b");
  EXPECT_EQ(job->run_key, "") << "'none' names no job";
  Environment again = variables(kTorchrun);
  again["TORCHELASTIC_RESTART_COUNT"] = "2";
  again["TORCHELASTIC_RUN_ID"] = "night";
  again["TORCHELASTIC_ERROR_FILE"] =
      "/tmp/torchelastic_a/none_b/attempt_2/0/error.json";
  const auto second = read_launcher(again, machine("here"));
  EXPECT_EQ(second->restarts, 2);
  EXPECT_EQ(second->starter, job->starter);
  EXPECT_EQ(second->run_key, "night");
  EXPECT_NE(second->local_key, job->local_key);
  again["MASTER_PORT"] = "65000";
  EXPECT_EQ(read_launcher(again)->coordinator, "10.0.0.5:64000");
}

// Mixes values of one row into another, cuts and doubles them: the result must
// be a job or an error of one line.
TEST(ReadLauncher, AnyEnvironmentIsAnsweredOrRefused) {
  std::mt19937 random(20261127);
  const auto below = [&](size_t count) { return random() % count; };
  std::vector<std::pair<std::string, std::string>> pool;
  for (const Documented& one : documented()) {
    for (const auto& variable : variables(one.variables)) {
      pool.emplace_back(variable);
    }
  }
  std::vector<std::string> odd = {"", "\n", "\xff\xfe", "a 1 b",
                                  std::string(5000, 'a')};
  std::istringstream words(
      "-1 0 1 2 1048576 1048577 99999999999999999999 [ [1] [[\"a\"]] {} , a "
      "2(x "
      "0(x0) 1(x2 -1(x2) ::1 /dev/null");
  for (std::string word; words >> word;) odd.push_back(word);
  int answered = 0, refused = 0, outside = 0;
  for (int round = 0; round < 5000; ++round) {
    Environment environment;
    if (below(3) > 0) {
      environment =
          variables(documented()[below(documented().size())].variables);
    }
    for (size_t changes = below(5); changes > 0; --changes) {
      const auto& [name, value] = pool[below(pool.size())];
      switch (below(4)) {
        case 0:
          environment.erase(name);
          break;
        case 1:
          environment[name] = odd[below(odd.size())];
          break;
        case 2:
          environment[name] = value.substr(0, below(value.size() + 1));
          break;
        default:
          environment[name] = pool[below(pool.size())].second;
      }
    }
    const LauncherMachine where =
        machine(odd[below(odd.size())], "/aux/12.pbs", odd[below(odd.size())]);
    try {
      const auto job = read_launcher(environment, where);
      if (!job) {
        ++outside;
        continue;
      }
      ++answered;
      EXPECT_GE(job->place.rank, 0);
      EXPECT_GE(job->place.size, 1);
      EXPECT_TRUE(!job->has_size || job->place.rank < job->place.size);
      EXPECT_LT(job->place.local_rank, job->place.local_size);
      EXPECT_LE(job->place.local_size, job->place.size);
      EXPECT_LT(job->local_worker, job->local_workers);
      EXPECT_EQ(job->place.job_id.find_first_of("/ \n"), std::string::npos);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    }
  }
  EXPECT_GT(answered, 300);
  EXPECT_GT(refused, 300);
  EXPECT_GT(outside, 30);
}

LauncherPlace place_of(int rank) {
  LauncherPlace place;
  place.rank = rank;
  place.size = 2;
  return place;
}

TEST(WaitForRankZero, RankZeroDoesNotWait) {
  EXPECT_FALSE(wait_for_rank_zero(place_of(0), std::chrono::hours(1)));
}

// Interrupts are counted until the process ends. So these waits run in a
// program of their own, where earlier tests have no effect.
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
