#include "worker/checkpoint/state_versions.h"

#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"

namespace headroom::checkpoint {
namespace {

using Json = nlohmann::json;

}  // namespace

int64_t VersionLayout::bytes() const {
  int64_t bytes = 0;
  for (const Kind& kind : kinds) bytes += kind.bytes;
  return bytes;
}

std::string to_text(const VersionLayout& layout) {
  Json kinds = Json::array();
  for (const VersionLayout::Kind& kind : layout.kinds) {
    Json parts = Json::array();
    for (const VersionLayout::Part& part : kind.parts) {
      parts.push_back({part.place.buffer, part.place.layer, part.place.begin,
                       part.size, static_cast<int>(part.type), part.at});
    }
    kinds.push_back({kind.bytes, std::move(parts)});
  }
  return kinds.dump();
}

VersionLayout layout_from_text(const std::string& text) {
  const Json kinds = Json::parse(text);
  VersionLayout layout;
  for (size_t i = 0; i < layout.kinds.size(); ++i) {
    VersionLayout::Kind& kind = layout.kinds[i];
    kind.bytes = kinds.at(i).at(0).get<int64_t>();
    for (const Json& part : kinds.at(i).at(1)) {
      kind.parts.push_back({{part.at(0).get<std::string>(),
                             part.at(1).get<int64_t>(),
                             part.at(2).get<int64_t>(),
                             {}},
                            part.at(3).get<int64_t>(),
                            static_cast<at::ScalarType>(part.at(4).get<int>()),
                            part.at(5).get<int64_t>()});
    }
  }
  return layout;
}

StateVersions::StateVersions(VersionLayout layout, Allocate allocate)
    : layout_(std::move(layout)), allocate_(std::move(allocate)) {}

// The copy of `step` itself, one that was begun and never completed, or the
// older one.
StateVersions::Copy& StateVersions::next_copy(Change change, int64_t step) {
  auto& [first, second] = copies_[static_cast<size_t>(change)];
  for (Copy* const copy : {&first, &second}) {
    if (copy->since == step) return *copy;
  }
  return first.since <= second.since ? first : second;
}

const at::Tensor& StateVersions::begin(Change change, int64_t step) {
  Copy& copy = next_copy(change, step);
  if (!copy.bytes.defined() || copy.bytes.storage().use_count() > 1) {
    copy.bytes = allocate_(layout_.of(change).bytes);
  }
  copy.since = kNever;
  copy.is_begun = true;
  copy.is_zero = false;
  return copy.bytes;
}

void StateVersions::hold(Change change, int64_t step, at::Tensor bytes) {
  Copy& copy = next_copy(change, step);
  copy.since = kNever;
  copy.is_begun = true;
  copy.is_zero = false;
  copy.bytes = std::move(bytes);
}

void StateVersions::begin_zero(Change change, int64_t step) {
  Copy& copy = next_copy(change, step);
  copy.since = kNever;
  copy.is_begun = copy.is_zero = true;
}

void StateVersions::complete(const step::TrainingCounters& counters) {
  for (auto& both : copies_) {
    for (Copy& copy : both) {
      if (std::exchange(copy.is_begun, false)) {
        copy.since = counters.committed_steps;
      }
    }
  }
  if (newest_step() == counters.committed_steps) {
    counters_.erase(counters_.begin());
  }
  counters_.insert(counters_.begin(), counters);
  if (counters_.size() > 2) counters_.pop_back();
}

const StateVersions::Copy* StateVersions::copy_at(Change change,
                                                  int64_t step) const {
  const Copy* newest = nullptr;
  for (const Copy& copy : copies_[static_cast<size_t>(change)]) {
    if (copy.since == kNever || copy.since > step) continue;
    if (newest == nullptr || newest->since < copy.since) newest = &copy;
  }
  return newest;
}

at::Tensor StateVersions::newest_bytes(Change change) const {
  const Copy* const copy = copy_at(change, newest_step());
  HEADROOM_CHECK(copy != nullptr, "no version is complete");
  return copy->is_zero ? at::Tensor() : copy->bytes;
}

std::vector<HostStateSnapshot> StateVersions::versions() const {
  const activations::CountingAllocator::HostMemory host;
  std::vector<HostStateSnapshot> versions;
  for (const step::TrainingCounters& counters : counters_) {
    HostStateSnapshot version;
    version.counters = counters;
    bool is_whole = true;
    for (const Change change : VersionLayout::kKinds) {
      if (layout_.of(change).parts.empty()) continue;
      const Copy* const copy = copy_at(change, counters.committed_steps);
      is_whole = is_whole && copy != nullptr;
      if (!is_whole) break;
      for (const VersionLayout::Part& part : layout_.of(change).parts) {
        HeldPart held = part.place;
        const auto bytes =
            part.size * static_cast<int64_t>(c10::elementSize(part.type));
        held.values =
            copy->is_zero
                ? at::zeros({part.size}, part.type)
                : copy->bytes.narrow(0, part.at, bytes).view(part.type);
        version.parts.push_back(std::move(held));
      }
    }
    if (is_whole) versions.push_back(std::move(version));
  }
  return versions;
}

}  // namespace headroom::checkpoint
