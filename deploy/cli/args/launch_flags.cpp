#include "deploy/cli/args/launch_flags.h"

#include <algorithm>

#include "deploy/cli/args/tool_flags.h"

namespace headroom::cli {
namespace {

std::vector<LaunchFlag> flags_of_processes() {
  return {
      {"--listen",
       "HOST:PORT",
       {"coordinator"},
       "Where to listen; port 0 takes a free one. Default 127.0.0.1:0."},
      {"--expected-workers",
       "N",
       {"coordinator"},
       "Workers of all agents together; the run starts when all are there. "
       "Default 1."},
      {"--coordinator",
       "HOST:PORT",
       {"agent", "status"},
       "Where the coordinator listens."},
      {"--coordinator",
       "HOST:PORT",
       {"train", "val"},
       "Join the run of a coordinator that is already there, as an agent. "
       "Under mpirun or srun: where rank 0's coordinator listens."},
      {"--rendezvous",
       "DIR",
       {"train", "val"},
       "Under mpirun or srun: a folder that all hosts share, in which rank 0 "
       "leaves the coordinator's address. Not needed on one host."},
      {"--log",
       "FILE",
       {"coordinator"},
       "Where decisions are written down before anybody hears of them: started "
       "again with the same flags and log, at the same address, the "
       "coordinator goes on with its run."},
      {"--metrics",
       "HOST:PORT",
       {"train", "val", "coordinator"},
       "Where the coordinator answers Prometheus (GET /metrics); a host beyond "
       "loopback needs --insecure-network, for it is plain HTTP."},
      {"--processes",
       "N",
       {"agent"},
       "Workers to start on this machine. Default 1."},
      {"--insecure-network",
       "",
       {"train", "val", "coordinator"},
       "Allow control traffic beyond loopback although it is neither encrypted "
       "nor authenticated; for private networks."},
      {"--certs",
       "DIR",
       {"train", "val", "coordinator", "agent", "status"},
       "Certificates of --init-certs: control traffic is encrypted, and both "
       "sides prove who they are. Needed beyond loopback."},
      {"--token-file",
       "FILE",
       {"train", "val", "coordinator", "agent", "status"},
       "The join token that everybody must know; default: the one in --certs "
       "DIR, if it is there."},
      {"--init-certs",
       "DIR",
       {"coordinator"},
       "Make a CA, certificates for the coordinator and for everybody else, "
       "and "
       "a join token, and end."},
      {"--cert-names",
       "NAMES",
       {"coordinator"},
       "Host names and addresses of the coordinator in its certificate, with "
       "commas between them; localhost is always one."},
      {"--show",
       "schedule",
       {"plan"},
       "Also draw what each pipeline stage does when: forward (F) and backward "
       "(B) of each micro-batch."},
      {"--cluster",
       "NAME:NODES",
       {"plan"},
       "Plan for machines that are not here: so many nodes of an instance that "
       "can be rented, for example p4d.24xlarge:2. One process per GPU."},
      {"--gpu-memory",
       "SIZE",
       {"plan"},
       "Plan for GPUs of this memory, for example 8GiB; --processes says how "
       "many there are."},
      {"--sweep",
       "AXIS=VALUES [AXIS=VALUES]",
       {"plan"},
       "A table of plans over image sizes and batches: img=416,640,1280 "
       "batch=8..64 (doubling from 8).",
       2},
      {"--write",
       "DIR",
       {"plan"},
       "Also write run.yaml and plan.json into this folder, for a worker "
       "without a coordinator: headroom-worker --standalone DIR/run.yaml."},
      {"--detections",
       "FILE",
       {"val"},
       "Score this file instead of running a model: COCO's result format, a "
       "list of {image_id, category_id, bbox, score}. No other flag of val but "
       "--ground-truth and --json counts then."},
      {"--ground-truth",
       "FILE",
       {"val"},
       "What --detections is held against: COCO's annotation format. Crowds "
       "are "
       "regions where nothing counts, as in COCO."},
      {"--ledger",
       "",
       {"status"},
       "Prove from the run directory's files, which is named before it, that "
       "every step was taken once and every sample of each epoch used once; "
       "exit 4 and the lines that contradict where it was not so."},
      {"--watch",
       "",
       {"status"},
       "Go on showing the status, once a second, until the run ends."},
      {"--json",
       "",
       {"train", "val", "status", "plan"},
       "Print the result as one JSON document on standard output."},
      {"--debug-reflection",
       "",
       {"coordinator"},
       "For debugging: answer gRPC's server reflection, so that grpcurl and "
       "the "
       "like find the calls."},
      {"--config-fd", "FD", {"coordinator"}, ""},
      {"--report-fd", "FD", {"coordinator"}, ""},
      {"--run-directory", "DIR", {"coordinator"}, ""},
      {"--saved-plan", "", {"coordinator"}, ""},
      {"--supervised", "", {"agent"}, ""},
  };
}

}  // namespace

const std::vector<LaunchFlag>& launch_flags() {
  static const std::vector<LaunchFlag> all = [] {
    std::vector<LaunchFlag> flags = flags_of_processes();
    const std::vector<LaunchFlag> tools = tool_flags();
    flags.insert(flags.end(), tools.begin(), tools.end());
    return flags;
  }();
  return all;
}

bool belongs_to(const LaunchFlag& flag, const std::string& command) {
  return std::find(flag.commands.begin(), flag.commands.end(), command) !=
         flag.commands.end();
}

}  // namespace headroom::cli
