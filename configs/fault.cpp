#include "configs/fault.h"

#include <array>
#include <map>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

struct PhaseName {
  Fault::Phase phase;
  const char* name;
};
constexpr std::array kPhases = {
    PhaseName{Fault::Phase::kStep, "step"},
    PhaseName{Fault::Phase::kVote, "vote"},
    PhaseName{Fault::Phase::kCommit, "commit"},
    PhaseName{Fault::Phase::kLoader, "loader"},
    PhaseName{Fault::Phase::kValidation, "validation"},
    PhaseName{Fault::Phase::kCheckpoint, "checkpoint"},
    PhaseName{Fault::Phase::kForward, "forward"},
    PhaseName{Fault::Phase::kBackward, "backward"},
    PhaseName{Fault::Phase::kBetween, "between"},
    PhaseName{Fault::Phase::kEnd, "end"}};

// Whether the phase takes the kind: a process can only be stopped in some, and
// not at all in others.
bool fits(const Fault& fault) {
  switch (fault.phase) {
    case Fault::Phase::kForward:
    case Fault::Phase::kBackward:
    case Fault::Phase::kBetween:
    case Fault::Phase::kEnd:
      return fault.stops_the_worker();
    case Fault::Phase::kStep:
    case Fault::Phase::kLoader:
      return !fault.stops_the_worker();
    default:
      return true;
  }
}

[[noreturn]] void refuse(const std::string& part, const std::string& why) {
  throw Error("config", "--inject " + part + ": " + why,
              "write for example 'oom@rank=1,step=7,allocation=40' or "
              "'nan@rank=0,step=4', several separated by ';'");
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

Fault::Phase phase_of(const std::string& part, const std::string& value) {
  for (const PhaseName& entry : kPhases) {
    if (value == entry.name) return entry.phase;
  }
  refuse(part, "there is no phase '" + value + "'");
}

Fault::Kind kind_of(const std::string& part, const std::string& kind) {
  if (kind == "oom") return Fault::Kind::kOutOfMemory;
  if (kind == "nan") return Fault::Kind::kNotANumber;
  if (kind == "ballast") return Fault::Kind::kBallast;
  if (kind == "kill") return Fault::Kind::kKill;
  if (kind == "hang") return Fault::Kind::kHang;
  if (kind == "pause") return Fault::Kind::kPause;
  if (kind == "disk_full") {
    refuse(part, kind + " is not in this version");
  }
  refuse(part, "there is no fault '" + kind + "'");
}

Fault read_fault(const std::string& part) {
  const size_t at = part.find('@');
  const std::string kind = part.substr(0, at);
  Fault fault;
  fault.kind = kind_of(part, kind);
  const bool is_oom = fault.kind == Fault::Kind::kOutOfMemory;
  const bool is_ballast = fault.kind == Fault::Kind::kBallast;
  const bool is_pause = fault.kind == Fault::Kind::kPause;
  if (fault.stops_the_worker()) fault.phase = Fault::Phase::kForward;
  for (const auto& [name, value] : read_arguments(
           part, at == std::string::npos ? "" : part.substr(at + 1))) {
    if (name == "phase" && fault.kind != Fault::Kind::kNotANumber) {
      fault.phase = phase_of(part, value);
      if (!fits(fault)) refuse(part, kind + " has no phase '" + value + "'");
      continue;
    }
    const int64_t number = number_of(part, name, value);
    if (name == "rank") {
      fault.rank = static_cast<int>(number);
    } else if (name == "step") {
      fault.step = number;
    } else if (name == "allocation" && is_oom && number > 0) {
      fault.allocation = number;
    } else if (name == "bytes" && is_ballast && number > 0) {
      fault.bytes = number;
    } else if (name == "seconds" && is_pause && number > 0) {
      fault.seconds = number;
    } else {
      refuse(part, name + "=" + value + " does not belong to " + kind);
    }
  }
  if (is_ballast && fault.bytes == 0) refuse(part, "bytes are missing");
  if (is_pause && fault.seconds == 0) refuse(part, "seconds are missing");
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  for (const std::string& part : split(text, ';')) {
    faults.push_back(read_fault(part));
  }
  return faults;
}

std::string to_string(const Fault& fault) {
  const std::string place = "@rank=" + std::to_string(fault.rank) +
                            ",step=" + std::to_string(fault.step);
  if (fault.kind == Fault::Kind::kNotANumber) return "nan" + place;
  std::string text = "oom" + place;
  if (fault.kind == Fault::Kind::kOutOfMemory) {
    text += ",allocation=" + std::to_string(fault.allocation);
  } else if (fault.kind == Fault::Kind::kBallast) {
    text = "ballast" + place + ",bytes=" + std::to_string(fault.bytes);
  } else if (fault.kind == Fault::Kind::kPause) {
    text = "pause" + place + ",seconds=" + std::to_string(fault.seconds);
  } else {
    text = (fault.kind == Fault::Kind::kKill ? "kill" : "hang") + place;
  }
  for (const PhaseName& entry : kPhases) {
    if (entry.phase == fault.phase && fault.phase != Fault::Phase::kStep) {
      text += std::string(",phase=") + entry.name;
    }
  }
  return text;
}

}  // namespace headroom::configs
