// EventKind: the kinds of event in a run. Each line of events.jsonl carries a
// kind's name; the guide's reference page explains each kind.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

enum class EventKind {
  kPlan,
  kDevices,
  kGeneration,
  kRescale,
  kDrain,
  kJoin,
  kAgentJoins,
  kAgentSilent,
  kOverload,
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
  kRunOver,  // the last event of every run
  kSlowRank,
};

struct EventDescription {
  EventKind kind;
  const char* name;  // its name in files and messages
  const char* says;
};

// Every kind, in the order of the enum.
std::span<const EventDescription> event_descriptions();

std::string to_string(EventKind kind);
// Returns no value for an unknown name.
std::optional<EventKind> parse_event_kind(std::string_view name);

}  // namespace headroom
