// EventKind: what an event of a run tells. A line of events.jsonl has its name,
// and the guide's reference page says what each of them means.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

enum class EventKind {
  kPlan,
  kGeneration,
  kRescale,
  kDrain,
  kJoin,
  kAgentJoins,
  kAgentSilent,
  kRestart,
  kCoordinatorRestart,
  kCoordinatorPause,
  kCoordinatorLog,
  kLossOfProcess,
  kCardFailure,
  kFault,
  kOutOfMemory,
  kActivations,
  kMemoryPrediction,
  kLabelBound,
  kHostMemory,
  kDeviceMemory,
  kNetwork,
  kMemoryTrace,
  kCudaGraphs,
  kNonFinite,
  kLossScale,
  kData,
  kClasses,
  kAutoanchor,
  kWeights,
  kAugmentOn,
  kEpoch,
  kValidation,
  kPicture,
  kCheckpoint,
  kCheckpoints,
  kDisk,
  kRunDirectory,
  kResume,
  kRunOver,  // the last one of every run
};

struct EventDescription {
  EventKind kind;
  const char* name;  // its name in files and messages
  const char* says;
};

// Every kind, in the order of the enum.
std::span<const EventDescription> event_descriptions();

std::string to_string(EventKind kind);
// Nothing for another word.
std::optional<EventKind> parse_event_kind(std::string_view name);

}  // namespace headroom
