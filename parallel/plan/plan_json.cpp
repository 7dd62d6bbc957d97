#include "parallel/plan/plan_json.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/plan/named_values.h"
#include "parallel/plan/plan.h"

namespace headroom::plan {

std::optional<std::string> stage_begins_error(
    const std::vector<int64_t>& stage_begins, int pipeline_parallel_size) {
  if (stage_begins.size() != static_cast<size_t>(pipeline_parallel_size)) {
    return cat(stage_begins.size(), " stages for a pipeline axis of ",
               pipeline_parallel_size);
  }
  if (stage_begins.front() != 0) {
    return cat("the first stage begins at layer ", stage_begins.front(),
               ", not at 0");
  }
  for (size_t i = 1; i < stage_begins.size(); ++i) {
    if (stage_begins[i] > stage_begins[i - 1] && stage_begins[i] < kMaxLayers) {
      continue;
    }
    return cat("stage ", i, " begins at layer ", stage_begins[i],
               ", the one before at ", stage_begins[i - 1]);
  }
  return std::nullopt;
}

namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxSamples = int64_t{1} << 31;

Error bad_plan(const std::string& file, const std::string& what) {
  return Error("plan", file + ": " + what,
               "take a plan.json that Headroom wrote");
}

const ordered_json& member(const ordered_json& object, const std::string& name,
                           const std::string& file) {
  const auto found = object.find(name);
  if (found == object.end()) throw bad_plan(file, "'" + name + "' is missing");
  return *found;
}

int64_t whole(const ordered_json& value, const std::string& name,
              int64_t smallest, int64_t largest, const std::string& file) {
  const bool fits = value.is_number_integer() &&
                    value <= std::numeric_limits<int64_t>::max() &&
                    value >= smallest && value <= largest;
  if (!fits) {
    throw bad_plan(
        file, cat("'", name, "' is ", value.dump(),
                  ", not a whole number from ", smallest, " to ", largest));
  }
  return value.get<int64_t>();
}

int64_t positive(const ordered_json& object, const std::string& name,
                 int64_t largest, const std::string& file) {
  return whole(member(object, name, file), name, 1, largest, file);
}

// Keeps one entry for each sequence of consecutive ranks with equal
// predictions. Returns the lengths of the sequences; empty if there are no
// predictions.
std::vector<int64_t> join_equal_ranks(Plan& plan) {
  auto& peaks = plan.predicted_peak_bytes;
  auto& phases = plan.predicted_phase_bytes;
  const size_t ranks = std::max(peaks.size(), phases.size());
  std::vector<int64_t> counts;
  size_t kept = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const bool is_equal = rank > 0 &&
                          (peaks.empty() || peaks[rank] == peaks[kept - 1]) &&
                          (phases.empty() || phases[rank] == phases[kept - 1]);
    if (is_equal) {
      ++counts.back();
      continue;
    }
    counts.push_back(1);
    if (!peaks.empty()) peaks[kept] = peaks[rank];
    if (!phases.empty()) phases[kept] = phases[rank];
    ++kept;
  }
  if (!peaks.empty()) peaks.resize(kept);
  if (!phases.empty()) phases.resize(kept);
  return counts;
}

// How many ranks each prediction stands for: the plan's "predicted_ranks", or
// one rank each if that member is missing.
std::vector<int64_t> ranks_of_predictions(const ordered_json& object,
                                          const Plan& plan,
                                          const std::string& file) {
  const int64_t world_size = plan.layout.world_size();
  const auto found = object.find("predicted_ranks");
  if (found == object.end()) {
    return std::vector<int64_t>(static_cast<size_t>(world_size), 1);
  }
  std::vector<int64_t> counts;
  int64_t ranks = 0;
  for (const ordered_json& count : *found) {
    counts.push_back(whole(count, "predicted_ranks", 1, world_size, file));
    ranks += counts.back();
    if (ranks > world_size) break;
  }
  if (ranks != world_size) {
    throw bad_plan(file, cat("'predicted_ranks' is ", found->dump(),
                             ", which does not add up to the layout's ",
                             world_size, " ranks"));
  }
  return counts;
}

// Reads a list that is empty or has one entry for each of `counts`, and repeats
// each entry for as many ranks as its count says.
template <typename Value>
std::vector<Value> read_predictions(
    const ordered_json& object, const std::string& name,
    const std::vector<int64_t>& counts, const std::string& file,
    const std::function<Value(const ordered_json&)>& read) {
  std::vector<Value> ranks;
  if (!object.contains(name)) return ranks;
  const ordered_json& all = object[name];
  if (!all.is_array() || (!all.empty() && all.size() != counts.size())) {
    throw bad_plan(file, cat("'", name, "' is ", all.dump(), ", not a list of ",
                             counts.size(), " predictions"));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    ranks.insert(ranks.end(), static_cast<size_t>(counts[i]), read(all[i]));
  }
  return ranks;
}

void read_all_predictions(const ordered_json& object, const std::string& file,
                          Plan& plan) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> counts = ranks_of_predictions(object, plan, file);
  plan.predicted_peak_bytes = read_predictions<int64_t>(
      object, "predicted_peak_bytes", counts, file,
      [&](const ordered_json& bytes) {
        return whole(bytes, "predicted_peak_bytes", 0, kMost, file);
      });
  plan.predicted_phase_bytes = read_predictions<PhaseBytes>(
      object, "predicted_phase_bytes", counts, file,
      [&](const ordered_json& rank) {
        const auto bytes = [&](const std::string& name) {
          return whole(rank.is_object() ? member(rank, name, file) : rank, name,
                       0, kMost, file);
        };
        return PhaseBytes{bytes("start_up"), bytes("training"),
                          bytes("validation"), bytes("checkpoint"),
                          bytes("host")};
      });
}

// Reads the members that later versions added; a missing one keeps its default.
void read_later_members(const ordered_json& object, const std::string& file,
                        Plan& plan) {
  if (object.contains("even_batch_norm_groups")) {
    const ordered_json& even = object["even_batch_norm_groups"];
    if (!even.is_boolean()) {
      throw bad_plan(file, "'even_batch_norm_groups' is " + even.dump() +
                               ", not true or false");
    }
    plan.even_batch_norm_groups = even.get<bool>();
  }
  if (object.contains("zero_stage")) {
    plan.zero_stage = static_cast<int>(
        whole(object["zero_stage"], "zero_stage", 0, kMaxZeroStage, file));
  }
  if (object.contains("stage_begins")) {
    const ordered_json& begins = object["stage_begins"];
    if (!begins.is_array()) {
      throw bad_plan(file, "'stage_begins' is " + begins.dump() +
                               ", not a list of layers");
    }
    plan.stage_begins.clear();
    for (const ordered_json& begin : begins) {
      plan.stage_begins.push_back(
          whole(begin, "stage_begins", 0, kMaxLayers, file));
    }
  }
  if (const auto why = stage_begins_error(plan.stage_begins,
                                          plan.layout.pipeline_parallel_size)) {
    throw bad_plan(file, "'stage_begins': " + *why);
  }
  if (object.contains("validation_images")) {
    plan.validation_images = whole(object["validation_images"],
                                   "validation_images", 0, kMaxSamples, file);
  }
  read_all_predictions(object, file, plan);
  if (!object.contains("activation_policies")) return;
  const ordered_json& policies = object["activation_policies"];
  if (!policies.is_array() || policies.size() > kMaxLayers) {
    throw bad_plan(file, "'activation_policies' is " + policies.dump() +
                             ", not a list with a policy for each layer");
  }
  for (const ordered_json& name : policies) {
    const auto policy = parse_activation_policy(
        name.is_string() ? name.get<std::string>() : name.dump());
    if (!policy) {
      throw bad_plan(file, "'activation_policies' has " + name.dump() +
                               ", not \"keep\", \"lean\", \"recompute\" or "
                               "\"offload\"");
    }
    plan.activation_policies.push_back(*policy);
  }
}

std::string text(const ordered_json& object, const std::string& name,
                 const std::string& file) {
  const ordered_json& value = member(object, name, file);
  if (!value.is_string()) {
    throw bad_plan(file, "'" + name + "' is " + value.dump() + ", not a text");
  }
  return value.get<std::string>();
}

// A reason may quote flags and paths, which need not be valid UTF-8.
std::string dump(const ordered_json& object, int indent) {
  return object.dump(indent, ' ', false,
                     ordered_json::error_handler_t::replace);
}

}  // namespace

ordered_json plan_object(const Plan& plan) {
  ordered_json layout;
  layout["pipeline_parallel_size"] = plan.layout.pipeline_parallel_size;
  layout["data_parallel_size"] = plan.layout.data_parallel_size;
  layout["spatial_parallel_size"] = plan.layout.spatial_parallel_size;
  ordered_json object;
  object["layout"] = layout;
  object["backend"] = to_string(plan.backend);
  object["micro_batch_size"] = plan.micro_batch_size;
  object["batch_norm_group_size"] = plan.batch_norm_group_size;
  object["even_batch_norm_groups"] = plan.even_batch_norm_groups;
  object["zero_stage"] = plan.zero_stage;
  object["stage_begins"] = plan.stage_begins;
  object["activation_policies"] = ordered_json::array();
  for (const ActivationPolicy policy : plan.activation_policies) {
    object["activation_policies"].push_back(to_string(policy));
  }
  object["validation_images"] = plan.validation_images;
  object["predicted_peak_bytes"] = plan.predicted_peak_bytes;
  object["predicted_phase_bytes"] = ordered_json::array();
  for (const PhaseBytes& rank : plan.predicted_phase_bytes) {
    object["predicted_phase_bytes"].push_back({{"start_up", rank.start_up},
                                               {"training", rank.training},
                                               {"validation", rank.validation},
                                               {"checkpoint", rank.checkpoint},
                                               {"host", rank.host}});
  }
  object["reason"] = plan.reason;
  return object;
}

std::string plan_to_json(const Plan& plan,
                         const std::optional<NetworkRates>& network) {
  ordered_json object = plan_object(plan);
  if (network) object["network"] = network_object(*network);
  return dump(object, 2) + "\n";
}

ordered_json network_object(const NetworkRates& network) {
  return {{"machines", network.machines},
          {"interface", network.interface},
          {"slowest_bytes_per_second", network.slowest_bytes_per_second},
          {"fastest_bytes_per_second", network.fastest_bytes_per_second},
          {"latency_seconds", network.latency_seconds},
          {"is_sample", network.is_sample}};
}

namespace {

// Returns no value unless network_object() could have written the object.
std::optional<NetworkRates> network_of(const ordered_json& object) {
  if (!object.is_object()) return std::nullopt;
  NetworkRates network;
  const auto is_read = [&](const char* name, auto& value, auto&& has_type) {
    const auto found = object.find(name);
    if (found == object.end() || !has_type(*found)) return false;
    found->get_to(value);
    return true;
  };
  const auto is_whole = [](const ordered_json& value) {
    return value.is_number_integer();
  };
  const auto is_number = [](const ordered_json& value) {
    return value.is_number();
  };
  const auto is_text = [](const ordered_json& value) {
    return value.is_string();
  };
  const auto is_truth = [](const ordered_json& value) {
    return value.is_boolean();
  };
  const bool is_all =
      is_read("machines", network.machines, is_whole) &&
      is_read("interface", network.interface, is_text) &&
      is_read("slowest_bytes_per_second", network.slowest_bytes_per_second,
              is_number) &&
      is_read("fastest_bytes_per_second", network.fastest_bytes_per_second,
              is_number) &&
      is_read("latency_seconds", network.latency_seconds, is_number) &&
      is_read("is_sample", network.is_sample, is_truth);
  const bool is_sound =
      is_all && network.machines > 1 && network.slowest_bytes_per_second > 0 &&
      network.fastest_bytes_per_second >= network.slowest_bytes_per_second &&
      network.latency_seconds >= 0;
  return is_sound ? std::optional(network) : std::nullopt;
}

}  // namespace

std::optional<NetworkRates> parse_network(const std::string& text) {
  return network_of(ordered_json::parse(text, nullptr, false));
}

std::optional<NetworkRates> network_from_json(const std::string& text,
                                              const std::string& file) {
  const ordered_json object = ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) throw bad_plan(file, "not a JSON object");
  if (!object.contains("network")) return std::nullopt;
  const auto network = network_of(object["network"]);
  if (!network) {
    throw bad_plan(file, "'network' is " + object["network"].dump() +
                             ", not the rates of a network");
  }
  return network;
}

std::string plan_to_compact_json(const Plan& plan) {
  return dump(plan_object(plan), -1);
}

std::string plan_to_message(const Plan& whole_plan) {
  HEADROOM_CHECK(whole_plan.backend != Backend::kAuto,
                 "a plan's backend is decided before it is sent");
  Plan plan = whole_plan;
  const std::vector<int64_t> equal_ranks = join_equal_ranks(plan);
  ordered_json object = plan_object(plan);
  if (!equal_ranks.empty()) object["predicted_ranks"] = equal_ranks;
  return dump(object, -1);
}

Plan plan_from_json(const std::string& content, const std::string& file) {
  const ordered_json object = ordered_json::parse(content, nullptr, false);
  if (!object.is_object()) throw bad_plan(file, "not a JSON object");
  const ordered_json& layout = member(object, "layout", file);
  if (!layout.is_object()) throw bad_plan(file, "'layout' is not an object");
  constexpr int64_t kMaxAxis = 65'536;
  Plan plan;
  plan.layout.pipeline_parallel_size = static_cast<int>(
      positive(layout, "pipeline_parallel_size", kMaxAxis, file));
  plan.layout.data_parallel_size =
      static_cast<int>(positive(layout, "data_parallel_size", kMaxAxis, file));
  plan.layout.spatial_parallel_size = static_cast<int>(
      positive(layout, "spatial_parallel_size", kMaxAxis, file));
  const int64_t ranks = int64_t{plan.layout.pipeline_parallel_size} *
                        plan.layout.data_parallel_size;
  if (ranks * plan.layout.spatial_parallel_size > kMaxAxis) {
    throw bad_plan(file, "'layout' is of more than 65536 processes");
  }
  const std::string backend = text(object, "backend", file);
  const auto known = value_in(kBackends, backend);
  if (!known || known == Backend::kAuto) {
    throw bad_plan(file,
                   "'backend' is '" + backend + "', not gloo, nccl or mpi");
  }
  plan.backend = *known;
  plan.micro_batch_size =
      positive(object, "micro_batch_size", kMaxSamples, file);
  plan.batch_norm_group_size =
      positive(object, "batch_norm_group_size", kMaxSamples, file);
  read_later_members(object, file, plan);
  plan.reason = text(object, "reason", file);
  return plan;
}

}  // namespace headroom::plan
