#include "configs/fault.h"

#include <array>
#include <limits>
#include <map>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/plan/named_values.h"

namespace headroom::configs {
namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

constexpr auto kKinds = std::to_array<FaultDescription>(
    {{.value = Kind::kOutOfMemory,
      .name = "oom",
      .number = "allocation",
      .number_member = &Fault::allocation,
      .example = "oom@rank=1,step=7,allocation=40",
      .does = "an allocation fails"},
     {.value = Kind::kNotANumber,
      .name = "nan",
      .example = "nan@rank=0,step=4",
      .does = "a gradient is not finite"},
     {.value = Kind::kBallast,
      .name = "ballast",
      .number = "bytes",
      .number_member = &Fault::bytes,
      .needs_number = true,
      .example = "ballast@rank=0,step=5,bytes=8388608",
      .does = "memory is held to the end"},
     {.value = Kind::kKill,
      .name = "kill",
      .example = "kill@rank=0,step=5,phase=vote",
      .does = "the process is killed"},
     {.value = Kind::kHang,
      .name = "hang",
      .example = "hang@rank=1,step=3",
      .does = "the process stops for good"},
     {.value = Kind::kPause,
      .name = "pause",
      .number = "seconds",
      .number_member = &Fault::seconds,
      .needs_number = true,
      .example = "pause@rank=0,step=3,seconds=2",
      .does = "the process stops for so many seconds"},
     {.value = Kind::kDeviceError,
      .name = "device_error",
      .example = "device_error@rank=1,step=3,phase=collective",
      .does = "the card fails for this process"},
     {.value = Kind::kCorrupt,
      .name = "corrupt",
      .example = "corrupt@rank=1,step=5",
      .does = "a bit of the rank's weights changes"},
     {.value = Kind::kSlow,
      .name = "slow",
      .number = "percent",
      .number_member = &Fault::percent,
      .needs_number = true,
      .example = "slow@rank=1,step=5,percent=30",
      .does = "the rank is slower from then on; on the CPU, with --layout "
              "data=N"}});

constexpr auto kPhases =
    std::to_array<NamedValue<Phase>>({{Phase::kStep, "step"},
                                      {Phase::kVote, "vote"},
                                      {Phase::kCommit, "commit"},
                                      {Phase::kLoader, "loader"},
                                      {Phase::kValidation, "validation"},
                                      {Phase::kCheckpoint, "checkpoint"},
                                      {Phase::kForward, "forward"},
                                      {Phase::kBackward, "backward"},
                                      {Phase::kCollective, "collective"},
                                      {Phase::kBetween, "between"},
                                      {Phase::kEnd, "end"},
                                      {Phase::kCheck, "check"}});

// Whether a fault of this kind is possible in this phase: a process can be
// stopped in some phases only.
bool fits(const Fault& fault) {
  const bool is_device_error = fault.kind == Kind::kDeviceError;
  if (fault.kind == Kind::kNotANumber) {
    return fault.phase == Phase::kStep || fault.phase == Phase::kCheck;
  }
  if (fault.kind == Kind::kCorrupt) return fault.phase == Phase::kCommit;
  if (fault.kind == Kind::kSlow) return fault.phase == Phase::kStep;
  switch (fault.phase) {
    case Phase::kCollective:
      return is_device_error;
    case Phase::kCheck:
      return fault.kind == Kind::kOutOfMemory;
    case Phase::kCommit:
      return true;
    case Phase::kForward:
    case Phase::kBackward:
      return fault.strikes() || fault.kind == Kind::kOutOfMemory;
    case Phase::kBetween:
    case Phase::kEnd:
      return fault.stops_the_worker();
    case Phase::kStep:
    case Phase::kLoader:
      return !fault.strikes();
    default:
      return !is_device_error;
  }
}

[[noreturn]] void refuse(const std::string& part, const std::string& why) {
  throw Error("config", "--inject " + part + ": " + why,
              std::string("write for example '") + kKinds[0].example +
                  "' or '" + kKinds[1].example + "', several separated by ';'");
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

std::map<std::string, std::string> read_arguments(const std::string& part,
                                                  const std::string& text) {
  std::map<std::string, std::string> arguments;
  for (const std::string& argument : split(text, ',')) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos || equals + 1 == argument.size()) {
      refuse(part, "'" + argument + "' is not NAME=NUMBER");
    }
    const std::string name = argument.substr(0, equals);
    if (!arguments.emplace(name, argument.substr(equals + 1)).second) {
      refuse(part, name + " is given twice");
    }
  }
  return arguments;
}

int64_t number_of(const std::string& part, const std::string& name,
                  const std::string& value) {
  const auto number = parse_whole(value, 0);
  if (!number) refuse(part, "'" + name + "=" + value + "' is not NAME=NUMBER");
  return *number;
}

Phase phase_of(const std::string& part, const std::string& value) {
  if (const auto phase = value_in(kPhases, value)) return *phase;
  refuse(part, "there is no phase '" + value + "'");
}

const FaultDescription& kind_of(const std::string& part,
                                const std::string& kind) {
  if (const auto known = value_in(kKinds, kind)) {
    return entry_in(kKinds, *known);
  }
  if (kind == "disk_full") refuse(part, kind + " is not in this version");
  refuse(part, "there is no fault '" + kind + "'");
}

Fault read_fault(const std::string& part) {
  const size_t at = part.find('@');
  const FaultDescription& kind = kind_of(part, part.substr(0, at));
  Fault fault;
  fault.kind = kind.value;
  if (fault.strikes()) fault.phase = Phase::kForward;
  if (fault.kind == Kind::kCorrupt) fault.phase = Phase::kCommit;
  for (const auto& [name, value] : read_arguments(
           part, at == std::string::npos ? "" : part.substr(at + 1))) {
    if (name == "phase") {
      fault.phase = phase_of(part, value);
      if (!fits(fault)) {
        refuse(part, std::string(kind.name) + " has no phase '" + value + "'");
      }
      continue;
    }
    const int64_t number = number_of(part, name, value);
    if (name == "rank") {
      if (number > std::numeric_limits<int>::max()) {
        refuse(part, "there is no rank " + value);
      }
      fault.rank = static_cast<int>(number);
    } else if (name == "step") {
      fault.step = number;
    } else if (kind.number != nullptr && name == kind.number && number > 0) {
      fault.*kind.number_member = number;
    } else {
      refuse(part, name + "=" + value + " does not belong to " + kind.name);
    }
  }
  if (kind.needs_number && fault.*kind.number_member == 0) {
    refuse(part, std::string(kind.number) + " are missing");
  }
  return fault;
}

}  // namespace

std::span<const FaultDescription> fault_descriptions() { return kKinds; }

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  for (const std::string& part : split(text, ';')) {
    faults.push_back(read_fault(part));
  }
  return faults;
}

std::string to_string(const Fault& fault) {
  const FaultDescription& kind = entry_in(kKinds, fault.kind);
  std::string text = cat(kind.name, "@rank=", fault.rank, ",step=", fault.step);
  if (kind.number != nullptr) {
    text += cat(",", kind.number, "=", fault.*kind.number_member);
  }
  if (fault.phase != Phase::kStep) {
    text += ",phase=" + name_in(kPhases, fault.phase);
  }
  return text;
}

}  // namespace headroom::configs
