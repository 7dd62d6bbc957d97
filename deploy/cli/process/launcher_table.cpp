#include "deploy/cli/process/launcher_table.h"

#include <algorithm>

#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

// Slurm also sets SLURM_PROCID and SLURM_NTASKS in the batch script and in an
// interactive shell. There SLURM_STEP_ID has a reserved value, or is missing.
bool is_task_of_srun(const Environment& environment) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  return parse_whole(environment.at("SLURM_STEP_ID"), 0, kFirstSpecialStep - 1)
      .has_value();
}

// Without a host list, Volcano's plugin "env" only numbers independent pods.
bool has_volcano_hosts(const Environment& environment) {
  return std::ranges::any_of(environment, [](const auto& variable) {
    return variable.first.starts_with("VC_") &&
           variable.first.ends_with("_HOSTS");
  });
}

constexpr Launcher kLaunchers[] = {
    // torchrun may also run inside Kubeflow Trainer, Volcano, SkyPilot,
    // Lightning and srun. torchrun's own store listens at MASTER_PORT.
    {.name = "torchrun",
     .recognised_by = {"RANK", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
     .started = Started::kWorkers,
     .rank = "GROUP_RANK",
     .size = "GROUP_WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .devices = "LOCAL_WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .port_step = 1000,
     .restarts = "TORCHELASTIC_RESTART_COUNT",
     .run_id = "TORCHELASTIC_RUN_ID",
     .exit = WhoseExit::kEveryProcess,
     .error_form = ErrorFile::kTorchelastic,
     .error_file = "TORCHELASTIC_ERROR_FILE"},
    // PMIX_NAMESPACE is a 16-bit hash, so its values repeat. The transport key
    // is random and equal in all processes of a job, so both together are
    // unique.
    {.name = "mpirun",
     .recognised_by = {"OMPI_COMM_WORLD_RANK"},
     .started = Started::kAgents,
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = "PMIX_NAMESPACE",
     .job_again = "OMPI_MCA_orte_precondition_transports",
     .exit = WhoseExit::kEveryProcess},
    {.name = "mpiexec",
     .recognised_by = {"PMI_RANK"},
     .gives_way = true,
     .started = Started::kAgents,
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID|PMI_LOCAL_RANK",
     .local_size = "MPI_LOCALNRANKS|PMI_LOCAL_SIZE",
     .job = "PMI_JOBID",
     .exit = WhoseExit::kEveryProcess},
    {.name = "flux run",
     .recognised_by = {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
     .started = Started::kAgents,
     .rank = "FLUX_TASK_RANK",
     .size = "FLUX_JOB_SIZE",
     .local_rank = "FLUX_TASK_LOCAL_ID",
     .nodes = "FLUX_JOB_NNODES",
     .job = "FLUX_JOB_ID",
     .exit = WhoseExit::kEveryProcess},
    {.name = "srun",
     .recognised_by = {"SLURM_PROCID", "SLURM_STEP_ID"},
     .is_meant = is_task_of_srun,
     .started = Started::kAgents,
     .rank = "SLURM_PROCID",
     .size = "SLURM_NTASKS",
     .local_rank = "SLURM_LOCALID",
     .local_size = "SLURM_STEP_TASKS_PER_NODE",
     .node = "SLURM_NODEID",
     .devices = "SLURM_GPUS_PER_TASK",
     .promises_cards = true,
     .job = "SLURM_JOB_ID",
     .job_again = "SLURM_STEP_ID",
     .exit = WhoseExit::kEveryProcess},
    // PMIx gives a rank but no variable with the size. Open MPI, Slurm and Flux
    // set these variables too.
    {.name = "PMIx",
     .recognised_by = {"PMIX_RANK", "PMIX_NAMESPACE"},
     .gives_way = true,
     .started = Started::kAgents,
     .rank = "PMIX_RANK",
     .job = "PMIX_NAMESPACE",
     .exit = WhoseExit::kEveryProcess},
    // Kubeflow Trainer sets torchrun's options as variables. This row is for
    // its jobs that do not start torchrun.
    {.name = "Kubeflow Trainer",
     .recognised_by = {"PET_NNODES", "PET_NODE_RANK"},
     .rank = "PET_NODE_RANK",
     .size = "PET_NNODES",
     .devices = "PET_NPROC_PER_NODE",
     .address = "PET_MASTER_ADDR",
     .port = "PET_MASTER_PORT",
     .exit = WhoseExit::kPod},
    // This row is for Kubeflow's PyTorchJob and Volcano's pytorch plugin.
    {.name = "PyTorchJob",
     .recognised_by = {"MASTER_ADDR", "RANK", "WORLD_SIZE"},
     .absent = "LOCAL_RANK",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .exit = WhoseExit::kPod},
    // A machine of a cluster without a job manager, as in Lightning's
    // documentation. WORLD_SIZE is the number of machines.
    {.name = "Lightning",
     .recognised_by = {"MASTER_ADDR", "NODE_RANK", "WORLD_SIZE"},
     .absent = "RANK",
     .rank = "NODE_RANK",
     .size = "WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .exit = WhoseExit::kEveryProcess},
    {.name = "Volcano",
     .recognised_by = {"VC_TASK_INDEX"},
     .is_meant = has_volcano_hosts,
     .rank = "VC_TASK_INDEX",
     .hosts = "VC_*_HOSTS",
     .host_list = HostList::kCommas,
     .exit = WhoseExit::kPod},
    {.name = "SkyPilot",
     .recognised_by = {"SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"},
     .rank = "SKYPILOT_NODE_RANK",
     .size = "SKYPILOT_NUM_NODES",
     .devices = "SKYPILOT_NUM_GPUS_PER_NODE",
     .promises_cards = true,
     .hosts = "SKYPILOT_NODE_IPS",
     .host_list = HostList::kLines,
     .exit = WhoseExit::kEveryProcess},
    // The main node has no variable with its own address.
    {.name = "AWS Batch",
     .recognised_by = {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES",
                       "AWS_BATCH_JOB_MAIN_NODE_INDEX"},
     .rank = "AWS_BATCH_JOB_NODE_INDEX",
     .size = "AWS_BATCH_JOB_NUM_NODES",
     .main_node = "AWS_BATCH_JOB_MAIN_NODE_INDEX",
     .address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
     .exit = WhoseExit::kRankZero},
    {.name = "SageMaker",
     .recognised_by = {"SM_HOSTS", "SM_CURRENT_HOST"},
     .devices = "SM_NUM_GPUS",
     .promises_cards = true,
     .hosts = "SM_HOSTS",
     .host_list = HostList::kJson,
     .own_host = "SM_CURRENT_HOST",
     .exit = WhoseExit::kEveryProcess,
     .error_form = ErrorFile::kText,
     .error_file = "/opt/ml/output/failure"},
    {.name = "PBS",
     .recognised_by = {"PBS_JOBID", "PBS_NODEFILE", "PBS_NODENUM"},
     .rank = "PBS_NODENUM",
     .hosts = "PBS_NODEFILE",
     .host_list = HostList::kFileOfSlots,
     .exit = WhoseExit::kEveryProcess},
    {.name = "LSF",
     .recognised_by = {"LSB_JOBID", "LSB_MCPU_HOSTS"},
     .hosts = "LSB_MCPU_HOSTS",
     .host_list = HostList::kCounts,
     .exit = WhoseExit::kEveryProcess},
    // Kubernetes gives a pod its index but not the number of pods. The pods of
    // a run are agents of a coordinator that --coordinator names; without that
    // flag a pod trains alone.
    {.name = "Indexed Job",
     .recognised_by = {"JOB_COMPLETION_INDEX"},
     .gives_way = true,
     .rank = "JOB_COMPLETION_INDEX",
     .exit = WhoseExit::kPod},
};

}  // namespace

std::span<const Launcher> launchers() { return kLaunchers; }

}  // namespace headroom::cli
