#include "tests/support/nccl_shim/faults.h"

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace headroom::nccl_shim {
namespace {

ShimFault::Kind kind_of(const std::string& word) {
  static const std::map<std::string, ShimFault::Kind> kinds = {
      {"delay", ShimFault::Kind::kDelay}, {"never", ShimFault::Kind::kNever},
      {"fail", ShimFault::Kind::kFail},   {"refuse", ShimFault::Kind::kRefuse},
      {"full", ShimFault::Kind::kFull},   {"hang", ShimFault::Kind::kHang}};
  const auto found = kinds.find(word);
  if (found == kinds.end()) throw std::invalid_argument("no fault " + word);
  return found->second;
}

ShimFault parse_one(const std::string& text) {
  ShimFault fault;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "call") {
      fault.call = value;
    } else if (key == "kind") {
      fault.kind = kind_of(value);
    } else if (key == "rank") {
      fault.rank = std::stoi(value);
    } else if (key == "nth") {
      fault.nth = std::stoi(value);
    } else if (key == "ms") {
      fault.milliseconds = std::stoi(value);
    } else if (key == "result") {
      fault.result = std::stoi(value);
    } else if (key == "file") {
      fault.file = value;
    } else {
      throw std::invalid_argument("no key " + word);
    }
  }
  return fault;
}

std::vector<ShimFault> faults_now() {
  std::vector<ShimFault> faults;
  const char* const text = std::getenv("HEADROOM_NCCL_FAULTS");
  std::istringstream parts(text == nullptr ? "" : text);
  for (std::string part; std::getline(parts, part, ';');) {
    if (!part.empty()) faults.push_back(parse_one(part));
  }
  return faults;
}

}  // namespace

std::optional<ShimFault> fault_of_call(const std::string& call, int rank) {
  static auto* const mutex = new std::mutex;
  static auto* const counts = new std::map<std::pair<std::string, int>, int>;
  const std::lock_guard lock(*mutex);
  const int count = ++(*counts)[{call, rank}];
  for (const ShimFault& fault : faults_now()) {
    if (fault.call != call) continue;
    if (fault.rank >= 0 && fault.rank != rank) continue;
    if (fault.nth > 0 && fault.nth != count) continue;
    if (!fault.file.empty() && access(fault.file.c_str(), F_OK) != 0) continue;
    return fault;
  }
  return std::nullopt;
}

}  // namespace headroom::nccl_shim
