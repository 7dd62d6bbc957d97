#include "configs/worker_start.h"

#include "configs/arguments.h"

namespace headroom::configs {
namespace {

Option bound(const std::string& form, Option::Member field, std::string advice,
             bool is_required = false) {
  Option made =
      option(form, {}, std::move(advice), {.is_required = is_required});
  made.member = field;
  return made;
}

}  // namespace

std::vector<Option> options_of(WorkerStart& start) {
  return {
      bound("--coordinator HOST:PORT", &start.coordinator,
            "The coordinator listens at this address.", true),
      bound("--node-id ID", &start.node_id, "The worker's agent has this name.",
            true),
      bound("--worker-id ID", &start.worker_id, "The worker has this name.",
            true),
      bound("--advertise-host HOST", &start.advertise_host,
            "Other workers reach this one at this host.", true),
      bound("--threads N", &start.threads,
            "The worker computes with this many threads."),
      bound("--certs DIR", &start.certs, "This folder holds the certificates."),
      bound("--token-file FILE", &start.token_file,
            "This file holds the join token."),
      bound("--insecure-network", &start.insecure_network,
            "Unprotected traffic may leave the machine."),
      bound("--card N", &start.card,
            "The worker computes on this card. By default it follows from the "
            "local rank."),
      bound("--card-uuid UUID", &start.card_uuid,
            "The card must have this UUID: the agent found it so."),
      bound("--return-memory", &start.return_memory,
            "Freed memory goes back to the system at once, which takes less of "
            "it and up to twice the time. The agent sets it after the kernel "
            "has killed a worker because the host's memory ran out."),
      bound("--augment-program COMMAND", &start.augment_program,
            "Training samples go through this program."),
      bound("--shared-index FD", &start.shared_index,
            "The agent's workers share the index of the data sets in this open "
            "file. By default the worker has its own."),
      bound("--shared-images FD", &start.shared_images,
            "The agent's workers share their decoded images in this open file. "
            "By default the worker has its own."),
      bound("--sharers N", &start.sharers,
            "So many workers share these files."),
  };
}

std::vector<Option> options_of(StandaloneRequest& request) {
  return {
      bound("RUN.YAML", &request.run_yaml, "This file describes the run.",
            true),
      bound("--plan PLAN.JSON", &request.plan_json,
            "This is the plan. The default is the one beside RUN.YAML; if "
            "there is none, the worker chooses one."),
      bound("--run-directory DIR", &request.run_directory,
            "The results of a new run go into this folder."),
      bound("--resume", &request.resume,
            "The worker goes on with the run whose folder RUN.YAML lies in. "
            "There is no --run-directory then."),
      bound("--augment-program COMMAND", &request.augment_program,
            "Training samples go through this program."),
  };
}

std::vector<std::string> words_of(WorkerStart start) {
  WorkerStart unset;
  return words_of(options_of(start), options_of(unset));
}

}  // namespace headroom::configs
