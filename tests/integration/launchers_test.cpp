// Two agents on this machine, each with the variables that a launcher sets on
// its node, form one run of two workers. Also tests the features of torchrun:
// local ranks that wait, the file that describes a failure, and a restart after
// a failure.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <ostream>
#include <sstream>

#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "runs/train/exp";

std::vector<std::string> small_training(const std::string& steps) {
  return headroom_command(
      "train --synthetic-input --cfg yolov5n --img 64 --batch 4 --device cpu "
      "--threads 1 --noval --noplots --max-steps " +
      steps);
}

// Puts the variables "A=1;B=2" before the command.
std::vector<std::string> with(const std::string& variables,
                              const std::vector<std::string>& command) {
  std::vector<std::string> words = {"env"};
  std::istringstream in(variables);
  for (std::string entry; std::getline(in, entry, ';');) words.push_back(entry);
  return joined(words, command);
}

class Launched : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = fresh_folder(); }

  // Starts an agent. Both agents have the same working directory, as on a
  // shared file system, but separate output.
  std::unique_ptr<Program> begin(const std::string& name,
                                 const std::vector<std::string>& command) {
    fs::create_directories(folder_ / name);
    return std::make_unique<Program>(
        joined({"env", "-C", folder_.string()}, command), folder_ / name);
  }

  // Returns a file with a token. If the launcher names an address on loopback,
  // the agents have no other secret in common.
  std::string token_file() const {
    const fs::path file = folder_ / "token";
    std::ofstream(file) << std::string(32, 't') << "\n";
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    return file.string();
  }

  fs::path log() const { return folder_ / kRun / "steps.jsonl"; }

  // The number of workers of the first generation.
  int first_world_size() const {
    for (const Json& event : read_lines(folder_ / kRun / "events.jsonl")) {
      if (event.at("event") == "generation") {
        return event.at("world_size").get<int>();
      }
    }
    return 0;
  }

  fs::path folder_;
};

// The variables and flags of each node, in addition to the flags of all nodes.
struct Row {
  std::string name;
  std::string node[2];        // its variables; "@" stands for the test's folder
  bool needs_folder = false;  // if the variables name no machine
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class TwoAgents : public Launched, public ::testing::WithParamInterface<Row> {};

TEST_P(TwoAgents, FormOneRunOfTwoWorkers) {
  const Row& row = GetParam();
  std::ofstream(folder_ / "hosts") << "127.0.0.1\n127.0.0.2\n";
  const std::vector<std::string> meet =
      row.needs_folder ? std::vector<std::string>{"--rendezvous",
                                                  (folder_ / "meet").string(),
                                                  "--insecure-network"}
                       : std::vector<std::string>{
                             "--coordinator", ":" + std::to_string(free_port()),
                             "--interface",   "lo",
                             "--token-file",  token_file()};
  std::unique_ptr<Program> agents[2];
  for (const int node : {0, 1}) {
    std::string variables = row.node[node];
    for (size_t at; (at = variables.find('@')) != std::string::npos;) {
      variables.replace(at, 1, folder_.string());
    }
    std::vector<std::string> command = small_training("2");
    command.insert(command.end(), meet.begin(), meet.end());
    agents[node] =
        begin("node-" + std::to_string(node), with(variables, command));
  }
  for (auto& agent : agents) {
    const ProgramResult result = agent->join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(read_lines(log()).size(), 2u);
  EXPECT_EQ(first_world_size(), 2);
  EXPECT_FALSE(fs::exists(folder_ / "runs/train/exp2"));
}

const std::string kTorchNode =
    "RANK=@R;WORLD_SIZE=2;LOCAL_RANK=0;LOCAL_WORLD_SIZE=1;GROUP_RANK=@R;"
    "GROUP_WORLD_SIZE=2;MASTER_ADDR=127.0.0.1;MASTER_PORT=29500;"
    "TORCHELASTIC_RESTART_COUNT=0;TORCHELASTIC_RUN_ID=none";

// A row with the same variables on both nodes; "@R" stands for the node's
// number.
Row same(const std::string& name, const std::string& variables,
         bool needs_folder = false) {
  Row row{name, {variables, variables}, needs_folder};
  for (const int node : {0, 1}) {
    std::string& text = row.node[node];
    for (size_t at; (at = text.find("@R")) != std::string::npos;) {
      text.replace(at, 2, std::to_string(node));
    }
  }
  return row;
}

const Row kRows[] = {
    same("torchrun", kTorchNode),
    same("mpirun",
         "OMPI_COMM_WORLD_RANK=@R;OMPI_COMM_WORLD_SIZE=2;"
         "OMPI_COMM_WORLD_LOCAL_RANK=0;OMPI_COMM_WORLD_LOCAL_SIZE=1;"
         "PMIX_NAMESPACE=7",
         true),
    same("mpiexec", "PMI_RANK=@R;PMI_SIZE=2;PMI_JOBID=7", true),
    same("flux",
         "FLUX_TASK_RANK=@R;FLUX_TASK_LOCAL_ID=0;FLUX_JOB_SIZE=2;"
         "FLUX_JOB_NNODES=2;FLUX_JOB_ID=f7",
         true),
    same("srun_pmix",
         "SLURM_PROCID=@R;SLURM_NTASKS=2;SLURM_LOCALID=0;SLURM_NODEID=@R;"
         "SLURM_JOB_ID=8;SLURM_STEP_ID=0;SLURM_STEP_TASKS_PER_NODE=1(x2);"
         "PMIX_RANK=@R;PMIX_NAMESPACE=slurm.pmix.8.0",
         true),
    same("trainer",
         "PET_NNODES=2;PET_NPROC_PER_NODE=auto;PET_NODE_RANK=@R;"
         "PET_MASTER_ADDR=localhost;PET_MASTER_PORT=29500;"
         "JOB_COMPLETION_INDEX=@R"),
    same("pytorchjob",
         "MASTER_ADDR=localhost;MASTER_PORT=23456;RANK=@R;WORLD_SIZE=2"),
    same("lightning",
         "MASTER_ADDR=localhost;MASTER_PORT=1234;NODE_RANK=@R;WORLD_SIZE=2"),
    same("volcano",
         "VC_TASK_INDEX=@R;VC_WORKER_NUM=2;VC_WORKER_HOSTS=127.0.0.1,"
         "127.0.0.2"),
    same("skypilot",
         "SKYPILOT_NODE_RANK=@R;SKYPILOT_NUM_NODES=2;"
         "SKYPILOT_NUM_GPUS_PER_NODE=8;SKYPILOT_NODE_IPS=127.0.0.1\n"
         "127.0.0.2"),
    {"aws_batch",
     {"AWS_BATCH_JOB_ID=5f#0;AWS_BATCH_JOB_NODE_INDEX=0;"
      "AWS_BATCH_JOB_NUM_NODES=2;AWS_BATCH_JOB_MAIN_NODE_INDEX=1;"
      "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=127.0.0.1",
      "AWS_BATCH_JOB_ID=5f#1;AWS_BATCH_JOB_NODE_INDEX=1;"
      "AWS_BATCH_JOB_NUM_NODES=2;AWS_BATCH_JOB_MAIN_NODE_INDEX=1"}},
    {"sagemaker",
     {"SM_HOSTS=[\"127.0.0.1\",\"127.0.0.2\"];SM_CURRENT_HOST=127.0.0.1",
      "SM_HOSTS=[\"127.0.0.1\",\"127.0.0.2\"];SM_CURRENT_HOST=127.0.0.2"}},
    same("pbs", "PBS_JOBID=12;PBS_NODEFILE=@/hosts;PBS_NODENUM=@R"),
};

INSTANTIATE_TEST_SUITE_P(Rows, TwoAgents, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

// LSF's list of hosts identifies an agent by its host name, so each agent gets
// its own host name.
TEST_F(Launched, LsfsTwoHostsFormOneRun) {
  if (run_program({"unshare", "--uts", "true"}, folder_).exit_code != 0) {
    GTEST_SKIP() << "host names of its own need root";
  }
  const std::string port = std::to_string(free_port());
  std::unique_ptr<Program> agents[2];
  for (const int node : {0, 1}) {
    const std::string host = node == 0 ? "127.0.0.1" : "127.0.0.2";
    agents[node] = begin(
        "node-" + std::to_string(node),
        joined(
            {"unshare", "--uts", "sh", "-c",
             "hostname " + host + "; exec \"$@\"", "sh"},
            with("LSB_JOBID=31;LSB_MCPU_HOSTS=127.0.0.1 1 127.0.0.2 1",
                 joined(small_training("2"), {"--coordinator", ":" + port,
                                              "--token-file", token_file()}))));
  }
  for (auto& agent : agents) {
    const ProgramResult result = agent->join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(read_lines(log()).size(), 2u);
}

// The pods of an Indexed Job are agents, and the coordinator is started
// separately.
TEST_F(Launched, PodsOfAnIndexedJobJoinACoordinator) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  std::vector<std::string> words = small_training("2");
  words[1] = "coordinator";
  auto coordinator =
      begin("coordinator",
            joined(words, {"--listen", address, "--expected-workers", "2"}));
  std::unique_ptr<Program> agents[2];
  for (const int node : {0, 1}) {
    agents[node] =
        begin("node-" + std::to_string(node),
              with("JOB_COMPLETION_INDEX=" + std::to_string(node),
                   {program("headroom"), "agent", "--coordinator", address}));
  }
  for (Program* process :
       {coordinator.get(), agents[0].get(), agents[1].get()}) {
    const ProgramResult result = process->join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(read_lines(log()).size(), 2u);
}

class Torchrun : public Launched {
 protected:
  // The variables of one of two workers on one node.
  std::string worker(int rank, int restarts = 0) const {
    return "RANK=" + std::to_string(rank) +
           ";LOCAL_RANK=" + std::to_string(rank) +
           ";WORLD_SIZE=2;LOCAL_WORLD_SIZE=2;GROUP_RANK=0;GROUP_WORLD_SIZE=1;"
           "MASTER_ADDR=localhost;MASTER_PORT=" +
           std::to_string(port_) + ";TORCHELASTIC_RUN_ID=none;" +
           "TORCHELASTIC_RESTART_COUNT=" + std::to_string(restarts) +
           ";TORCHELASTIC_ERROR_FILE=" + folder_.string() + "/none_x/attempt_" +
           std::to_string(restarts) + "/" + std::to_string(rank) +
           "/error.json";
  }
  std::unique_ptr<Program> start(int rank,
                                 const std::vector<std::string>& command,
                                 int restarts = 0) {
    fs::create_directories(error_file(rank, restarts).parent_path());
    return begin("rank-" + std::to_string(rank),
                 with(worker(rank, restarts), command));
  }
  fs::path error_file(int rank, int restarts = 0) const {
    return folder_ / "none_x" / ("attempt_" + std::to_string(restarts)) /
           std::to_string(rank) / "error.json";
  }

  int port_ = free_port();
};

TEST_F(Torchrun, LocalRankZeroHasAllWorkersAndTheOthersItsExitCode) {
  auto other = start(1, small_training("2"));
  auto agent = start(0, small_training("2"));
  const ProgramResult waited = other->join();
  EXPECT_EQ(waited.exit_code, 0) << waited.err;
  EXPECT_EQ(waited.err, "");
  EXPECT_EQ(waited.out, "");
  const ProgramResult result = agent->join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(first_world_size(), 2);
  EXPECT_FALSE(fs::exists(error_file(0)));
}

TEST_F(Torchrun, AFailureIsOneVerdictAndAFileInItsForm) {
  std::vector<std::string> wrong = small_training("2");
  wrong.insert(wrong.end(), {"--cfg", "no_such_model"});
  auto agent = start(0, wrong);
  auto other = start(1, wrong);
  const ProgramResult result = agent->join();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  const ProgramResult waited = other->join();
  EXPECT_EQ(waited.exit_code, 2) << waited.err;
  EXPECT_EQ(waited.err, "");
  const Json error = read_json(error_file(0)).at("message");
  EXPECT_NE(error.at("message").get<std::string>().find("no_such_model"),
            std::string::npos)
      << error;
  EXPECT_GT(
      std::stoll(error.at("extraInfo").at("timestamp").get<std::string>()),
      1'600'000'000);
  EXPECT_FALSE(fs::exists(error_file(1)));
}

TEST_F(Torchrun, AKilledAgentEndsTheOthers) {
  auto other = start(1, small_training("100000"));
  auto agent = start(0, small_training("100000"));
  ASSERT_TRUE(wait_for_lines(log(), 2, 120));
  agent->signal(SIGKILL);
  EXPECT_EQ(other->join().exit_code, 5);
}

TEST_F(Torchrun, AStartAfterAFailureGoesOnWithTheRun) {
  constexpr size_t kSteps = 60;
  const std::vector<std::string> training =
      joined(small_training(std::to_string(kSteps)),
             {"--set", "checkpoint_every_steps=2"});
  {
    auto other = start(1, training);
    auto agent = start(0, training);
    ASSERT_TRUE(wait_for_lines(log(), 5, 120));
    const std::vector<pid_t> all = descendants(agent->pid(), "headroom");
    agent->signal(SIGKILL);
    agent->join();
    EXPECT_EQ(other->join().exit_code, 5);
    for (const pid_t pid : all) {
      for (int tries = 0; ::kill(pid, 0) == 0 && tries < 400; ++tries) {
        ::usleep(100'000);
      }
    }
  }
  auto agent = start(0, training, 1);
  auto other = start(1, training, 1);
  const ProgramResult result = agent->join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("torchrun has started this job again"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(other->join().exit_code, 0);
  const std::vector<Json> steps = read_lines(log());
  ASSERT_EQ(steps.size(), kSteps);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].at("step"), i);
  EXPECT_FALSE(fs::exists(folder_ / "runs/train/exp2"));
}

TEST_F(Launched, ALoopbackAddressNeedsAToken) {
  const ProgramResult result =
      begin("node", with("MASTER_ADDR=127.0.0.1;MASTER_PORT=29500;NODE_RANK=0;"
                         "WORLD_SIZE=2",
                         small_training("2")))
          ->join();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("every user of this machine could join the run: "
                            "give --token-file FILE"),
            std::string::npos)
      << result.err;
}

TEST_F(Launched, AnAddressBeyondLoopbackNeedsProtection) {
  const ProgramResult result =
      begin("node", with("MASTER_ADDR=192.0.2.77;MASTER_PORT=29500;NODE_RANK=0;"
                         "WORLD_SIZE=2",
                         small_training("2")))
          ->join();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "[network] Lightning names rank 0's machine, 192.0.2.77:29500 "
            "(MASTER_ADDR): 192.0.2.77:29500 is beyond loopback, where control "
            "traffic must have TLS and a join token, and there is neither: "
            "give --certs DIR (headroom coordinator --init-certs DIR makes "
            "it), or allow plain text with --insecure-network on a private "
            "network\n");
}

}  // namespace
}  // namespace headroom::testing
