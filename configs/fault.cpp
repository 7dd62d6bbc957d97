#include "configs/fault.h"

#include <charconv>
#include <map>
#include <sstream>

#include "parallel/base/check.h"

namespace headroom {
namespace {

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

std::map<std::string, int64_t> read_arguments(const std::string& part,
                                              const std::string& text) {
  std::map<std::string, int64_t> arguments;
  for (const std::string& argument : split(text, ',')) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : argument.substr(equals + 1);
    int64_t number = 0;
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() ||
        number < 0) {
      refuse(part, "'" + argument + "' is not NAME=NUMBER");
    }
    if (!arguments.emplace(name, number).second) {
      refuse(part, name + " is given twice");
    }
  }
  return arguments;
}

Fault read_fault(const std::string& part) {
  const size_t at = part.find('@');
  const std::string kind = part.substr(0, at);
  Fault fault;
  if (kind == "oom") {
    fault.kind = Fault::Kind::kOutOfMemory;
  } else if (kind == "nan") {
    fault.kind = Fault::Kind::kNotANumber;
  } else if (kind == "kill" || kind == "hang" || kind == "disk_full") {
    refuse(part, kind + " is not in this version");
  } else {
    refuse(part, "there is no fault '" + kind + "'");
  }
  const bool is_oom = fault.kind == Fault::Kind::kOutOfMemory;
  for (const auto& [name, value] : read_arguments(
           part, at == std::string::npos ? "" : part.substr(at + 1))) {
    if (name == "rank") {
      fault.rank = static_cast<int>(value);
    } else if (name == "step") {
      fault.step = value;
    } else if (name == "allocation" && is_oom && value > 0) {
      fault.allocation = value;
    } else {
      refuse(part, name + "=" + std::to_string(value) + " does not belong to " +
                       kind);
    }
  }
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
  return "oom" + place + ",allocation=" + std::to_string(fault.allocation);
}

}  // namespace headroom
