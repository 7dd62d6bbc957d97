// Plans as JSON: plan.json of a run directory, the plan in a checkpoint's
// manifest, and events. Keys are the members' names; an axis is written in the
// layout object.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/network_rates.h"
#include "parallel/plan/plan.h"

namespace headroom::plan {

inline constexpr int kMaxZeroStage = 3;
inline constexpr int64_t kMaxLayers = 100'000;  // a model's layers

// What is wrong with a plan's stage_begins from a message or a file; nothing
// where there are as many as the pipeline axis has ranks, the first is 0, and
// each is above the one before.
std::optional<std::string> stage_begins_error(
    const std::vector<int64_t>& stage_begins, int pipeline_parallel_size);

nlohmann::ordered_json plan_object(const Plan& plan);

// The object, indented by two spaces, ends with a line feed.
// The measured network, where there is one, is its member "network".
std::string plan_to_json(const Plan& plan,
                         const std::optional<NetworkRates>& network = {});

// The same object on one line without spaces, for log lines and events.
std::string plan_to_compact_json(const Plan& plan);

// The compact form for messages to thousands of ranks: ranks in a row whose
// predictions are equal share one entry, and the member "predicted_ranks" says
// how many ranks each entry stands for.
// REQUIRES: plan.backend is not kAuto: a plan has decided.
std::string plan_to_message(const Plan& plan);

// Reads any of these forms. `text` is the content of `file`. Every member of
// the first version is required; zero_stage, stage_begins, activation_policies,
// validation_images and what is predicted have their defaults where a plan of
// an earlier version lacks them. Members that this build does not know are
// ignored, since a plan grows by estimates. Throws Error naming the file, the
// member and the value.
Plan plan_from_json(const std::string& text, const std::string& file);

nlohmann::ordered_json network_object(const NetworkRates& network);

// The measured network of a plan.json, or nothing where it has none. `text` is
// the content of `file`. Throws Error as plan_from_json().
std::optional<NetworkRates> network_from_json(const std::string& text,
                                              const std::string& file);

// The same of network_object() alone; nothing for another text.
std::optional<NetworkRates> parse_network(const std::string& text);

}  // namespace headroom::plan
