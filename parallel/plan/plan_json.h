// Plans as JSON: for plan.json of a run directory, a checkpoint's manifest, and
// events. Keys are the names of the struct's members; axes are in the object
// "layout".
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
inline constexpr int64_t kMaxLayers = 100'000;  // the most layers of a model

// Checks a plan's stage_begins from a message or file: there is one per
// pipeline stage, the first is 0, and they increase. Returns why they are
// invalid, or no value if they are valid.
std::optional<std::string> stage_begins_error(
    const std::vector<int64_t>& stage_begins, int pipeline_parallel_size);

nlohmann::ordered_json plan_object(const Plan& plan);

// The plan's object with an indent of two spaces and a final line feed.
// `network`, if given, becomes the member "network".
std::string plan_to_json(const Plan& plan,
                         const std::optional<NetworkRates>& network = {});

// The plan's object on one line without spaces, for log lines and events.
std::string plan_to_compact_json(const Plan& plan);

// The compact form for messages to thousands of ranks: consecutive ranks with
// equal predictions share one entry, and the member "predicted_ranks" says how
// many ranks each entry stands for. REQUIRES: plan.backend is not kAuto, since
// a plan has chosen its backend.
std::string plan_to_message(const Plan& plan);

// Parses the text of any of the three functions above; `text` is the content of
// `file`. Members of the first version are required; zero_stage, stage_begins,
// activation_policies, validation_images and the predictions get defaults if an
// older plan lacks them. Unknown members are ignored, because newer versions
// add estimates. Throws Error naming the file, the member and the value.
Plan plan_from_json(const std::string& text, const std::string& file);

nlohmann::ordered_json network_object(const NetworkRates& network);

// The measured network in a plan.json; no value if there is none. `text` is the
// content of `file`. Throws Error as plan_from_json().
std::optional<NetworkRates> network_from_json(const std::string& text,
                                              const std::string& file);

// Parses the text of a network_object(); returns no value for any other text.
std::optional<NetworkRates> parse_network(const std::string& text);

}  // namespace headroom::plan
