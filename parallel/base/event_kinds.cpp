#include "parallel/base/event_kinds.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace headroom {
namespace {

using K = EventKind;

constexpr auto kDescriptions = std::to_array<EventDescription>({
    {K::kPlan, "plan", "a plan was chosen, for this reason"},
    {K::kDevices, "devices", "the run computes on these cards, or on the CPU"},
    {K::kGeneration, "generation", "these processes take part from now on"},
    {K::kRescale, "rescale", "the run goes on with more or fewer processes"},
    {K::kDrain, "drain", "the run, or a node, ends at the next step"},
    {K::kJoin, "join", "a worker joined"},
    {K::kAgentJoins, "agent_joins", "an agent joined"},
    {K::kAgentSilent, "agent_silent", "an agent is no longer heard"},
    {K::kOverload, "overload", "a rank gets too little of a processor core"},
    {K::kRestart, "restart", "a worker is started again"},
    {K::kCoordinatorRestart, "coordinator_restart",
     "a coordinator went on from the log"},
    {K::kCoordinatorPause, "coordinator_pause", "the coordinator stood still"},
    {K::kCoordinatorLog, "coordinator_log",
     "the coordinator's log cannot be written, or can again"},
    {K::kLossOfProcess, "loss_of_process", "a worker was lost"},
    {K::kCardFailure, "card_failure",
     "a card failed; a second time leaves it out"},
    {K::kFault, "fault", "a fault was injected, or ends the run"},
    {K::kOutOfMemory, "out_of_memory", "an attempt ran out of memory"},
    {K::kActivations, "activations", "a leaner policy is taken or left"},
    {K::kMemoryPrediction, "memory_prediction",
     "a step took more bytes than predicted"},
    {K::kLabelBound, "label_bound", "images had more boxes than planned for"},
    {K::kHostMemory, "host_memory",
     "the loader and files take this host memory"},
    {K::kDeviceMemory, "device_memory", "the cards have this memory"},
    {K::kNetwork, "network", "the network was measured"},
    {K::kMemoryTrace, "memory_trace", "a trace was written"},
    {K::kCudaGraphs, "cuda_graphs",
     "a micro-batch was captured, or could not be"},
    {K::kNonFinite, "non_finite", "a loss or gradient was not finite"},
    {K::kLossScale, "loss_scale", "float16's scale was lowered"},
    {K::kData, "data", "the data set was read"},
    {K::kClasses, "classes", "classes of weights and data set differ"},
    {K::kAutoanchor, "autoanchor", "anchors were chosen"},
    {K::kWeights, "weights", "starting weights were loaded"},
    {K::kAugmentOn, "augment_on", "samples are rendered here"},
    {K::kEpoch, "epoch", "an epoch ended, with these losses"},
    {K::kValidation, "validation", "weights were evaluated"},
    {K::kPicture, "picture", "a picture could not be drawn"},
    {K::kCheckpoint, "checkpoint", "state was saved, or could not be"},
    {K::kCheckpoints, "checkpoints", "state is saved this often"},
    {K::kDisk, "disk", "a file cannot be written, or can again"},
    {K::kRunDirectory, "run_directory", "the folder was made again"},
    {K::kResume, "resume", "the run goes on from this step"},
    {K::kRunOver, "run_over",
     "the run has ended, with this exit code and reason"},
    {K::kSlowRank, "slow_rank",
     "a rank is slower than its peers, or is so no longer"},
});

}  // namespace

std::span<const EventDescription> event_descriptions() { return kDescriptions; }

std::string to_string(EventKind kind) {
  return kDescriptions.at(static_cast<size_t>(kind)).name;
}

std::optional<EventKind> parse_event_kind(std::string_view name) {
  const auto found =
      std::ranges::find(kDescriptions, name, &EventDescription::name);
  if (found == kDescriptions.end()) return std::nullopt;
  return found->kind;
}

}  // namespace headroom
