#include "coordinator/run/device_choice.h"

#include <algorithm>
#include <map>
#include <set>

#include "coordinator/run/precision_choice.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::coordinator {
namespace {

using wire::NodeCard;

std::string name_of(const Node& node) {
  return node.hostname.empty() ? node.node_id : node.hostname;
}

bool has_looked(const Node& node) {
  return !node.cards.empty() || !node.no_card_reason.empty();
}

// "8 x NVIDIA H100, 1 x NVIDIA T4"
std::string kinds_text(const std::vector<const NodeCard*>& cards) {
  std::map<std::string, int> count;
  for (const NodeCard* card : cards) ++count[card->name];
  return joined(count, ", ", [](const auto& kind) {
    return cat(kind.second, " x ", kind.first);
  });
}

std::vector<const NodeCard*> all_cards(const Node& node) {
  std::vector<const NodeCard*> cards;
  for (const NodeCard& card : node.cards) cards.push_back(&card);
  return cards;
}

// "0 (NVIDIA H100), 1 (NVIDIA H100)"
std::string list_text(const Node& node) {
  return first_of(node.cards, 16, [](const NodeCard& card) {
    return cat(card.index, " (", card.name, ")");
  });
}

Error refusal(const std::string& what, const std::string& remedy) {
  return Error("device", what, remedy);
}

const NodeCard* find_card(const Node& node, int64_t index) {
  const auto found = std::ranges::find(node.cards, index, &NodeCard::index);
  return found == node.cards.end() ? nullptr : &*found;
}

// Identifies a card across the agents of one machine.
std::string key_of(const NodeCard& card) {
  return card.uuid.empty() ? cat("card ", card.index) : card.uuid;
}

// A node whose agent has ended uses no card: its workers end with the agent.
bool may_hold_cards(const Node& node) {
  return !node.silent && !node.voice.has_hung_up;
}

struct Taken {
  std::set<std::string> keys;
  size_t workers = 0;
};

Taken taken_on_machine_of(const Node& node, std::span<const Node> others) {
  Taken taken;
  for (const Node& other : others) {
    if (other.node_id == node.node_id || name_of(other) != name_of(node) ||
        !may_hold_cards(other)) {
      continue;
    }
    for (const int64_t index : other.slot_cards) {
      const NodeCard* const card = find_card(other, index);
      if (card == nullptr) continue;
      taken.keys.insert(key_of(*card));
      ++taken.workers;
    }
  }
  return taken;
}

// Returns a node that has cards if `node` has none, or a node without cards if
// `node` has cards.
const Node* find_unlike(const Node& node, std::span<const Node> others) {
  const auto is_unlike = [&](const Node& other) {
    return other.node_id != node.node_id && has_looked(other) &&
           !other.worker_ids.empty() && may_hold_cards(other) &&
           other.cards.empty() != node.cards.empty();
  };
  const auto found = std::ranges::find_if(others, is_unlike);
  return found == others.end() ? nullptr : &*found;
}

Error mixed_error(const Node& with, const Node& without) {
  return refusal(name_of(with) + " has " + kinds_text(all_cards(with)) +
                     ", and " + name_of(without) + " has no card (" +
                     without.no_card_reason +
                     "): a run is on cards on all nodes or on none",
                 "start it on nodes of one kind, or on the CPUs of all: "
                 "--device cpu");
}

Error no_card_error(const configs::RunConfig& config, const Node& node) {
  return refusal("--device " + config.device + " asks for cards, and " +
                     name_of(node) + " has none: " + node.no_card_reason,
                 "use --device cpu, or nodes with cards");
}

Error too_few_error(const Node& node, size_t num_candidates, size_t num_taken) {
  const size_t workers = node.worker_ids.size() + num_taken;
  return refusal(
      name_of(node) + " starts " +
          counted(static_cast<int64_t>(workers), "worker") + ", and has " +
          counted(static_cast<int64_t>(num_candidates), "card") + " for them" +
          (node.cards.empty() ? "" : ": " + list_text(node)),
      cat("give --processes ", std::max<size_t>(1, num_candidates),
          ", or --device cpu; --set share_devices=true has several share a "
          "card"));
}

// The cards that --device lets this node use, in worker order.
std::vector<const NodeCard*> candidates_of(const configs::RunConfig& config,
                                           const Node& node) {
  const std::vector<int> named = parse_device_list(config.device);
  if (named.empty()) return all_cards(node);
  std::vector<const NodeCard*> candidates;
  for (const int index : named) {
    const NodeCard* const card = find_card(node, index);
    if (card == nullptr) {
      throw refusal(cat("--device ", config.device, ": there is no card ",
                        index, " on ", name_of(node), ", which has ",
                        node.cards.size(), ": ", list_text(node)),
                    "name some of these; CUDA_VISIBLE_DEVICES decides which "
                    "are shown");
    }
    candidates.push_back(card);
  }
  return candidates;
}

std::vector<int64_t> chosen_cards(const configs::RunConfig& config,
                                  const Node& node,
                                  std::span<const Node> others,
                                  const std::set<std::string>& left_out) {
  const size_t num_slots = node.worker_ids.size();
  std::vector<int64_t> cards(num_slots, -1);
  if (num_slots == 0 || config.device == kCpuDevice || !has_looked(node)) {
    return cards;
  }
  if (node.cards.empty() && computes_on_cards(config.device)) {
    throw no_card_error(config, node);
  }
  if (const Node* const unlike = find_unlike(node, others)) {
    throw node.cards.empty() ? mixed_error(*unlike, node)
                             : mixed_error(node, *unlike);
  }
  if (node.cards.empty()) return cards;
  std::vector<const NodeCard*> candidates = candidates_of(config, node);
  const auto failed = std::ranges::stable_partition(
      candidates,
      [&](const NodeCard* card) { return !left_out.contains(card->uuid); });
  const auto num_usable =
      static_cast<size_t>(failed.begin() - candidates.begin());
  if (num_usable == 0 && !failed.empty()) {
    throw refusal("the cards of " + name_of(node) +
                      " have failed in this run, and are left out of it",
                  "name others with --device, or use another machine");
  }
  const Taken taken = taken_on_machine_of(node, others);
  std::set<std::string> keys = taken.keys;  // cards that have a worker
  const auto is_free = [&](const NodeCard* card) {
    return !keys.contains(key_of(*card));
  };
  const auto free_among_first = [&](size_t count) {
    return static_cast<size_t>(
        std::ranges::count_if(std::span(candidates).first(count), is_free));
  };
  const size_t num_free = free_among_first(candidates.size());
  if (num_free < num_slots && !config.share_devices) {
    throw too_few_error(node, num_usable, taken.workers);
  }
  // If only failed cards are left for a worker, the worker gets a failed card
  // and ends at once; the other workers of the node continue.
  if (free_among_first(num_usable) >= num_slots || config.share_devices) {
    candidates.resize(num_usable);
  }
  const auto first = static_cast<size_t>(std::max(0, node.first_local_slot));
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const size_t place = first + slot;
    const auto next = std::ranges::find_if(candidates, is_free);
    const NodeCard& card =
        place < candidates.size() && is_free(candidates[place])
            ? *candidates[place]
        : next != candidates.end()
            ? **next
            : *candidates[(taken.workers + slot) % candidates.size()];
    keys.insert(key_of(card));
    if (!card.trouble.empty()) {
      throw refusal(name_of(node) + ": " + card.trouble,
                    "then start the run again");
    }
    cards[slot] = card.index;
  }
  return cards;
}

bool looks_at_tiles(const configs::RunConfig& config) {
  return config.tile_height > 0 || config.tile_width > 0;
}

std::string settled_device(const configs::RunConfig& config, bool has_cards) {
  if (!is_automatic_device(config.device)) return config.device;
  return has_cards && !looks_at_tiles(config) ? kAllCards : kCpuDevice;
}

}  // namespace

SlotCards choose_slot_cards(const configs::RunConfig& config, const Node& node,
                            std::span<const Node> others,
                            const std::set<std::string>& left_out) {
  try {
    return {chosen_cards(config, node, others, left_out), std::nullopt};
  } catch (const Error& error) {
    return {{}, error};
  }
}

std::optional<Error> launcher_count_error(const Node& node,
                                          int expected_workers) {
  if (node.launcher_size < 1 ||
      static_cast<int>(node.worker_ids.size()) * node.launcher_size ==
          expected_workers) {
    return std::nullopt;
  }
  return refusal(
      cat(name_of(node), " starts ",
          counted(std::ssize(node.worker_ids), "worker"),
          node.cards.empty()
              ? ""
              : " for its " + counted(std::ssize(node.cards), "card"),
          ", and rank 0 expects ", expected_workers / node.launcher_size,
          " of each of ", counted(node.launcher_size, "agent")),
      "see that each node has as many cards (nvidia-smi -L), or give "
      "--processes N");
}

DeviceChoice choose_devices(const configs::RunConfig& config,
                            std::span<const Node> nodes) {
  std::vector<const NodeCard*> used, all;
  std::set<std::string> seen;
  std::set<std::string> unusable;
  size_t num_slots = 0;
  for (const Node& node : nodes) {
    if (!node.unusable_cards.empty()) {
      unusable.insert(name_of(node) + ": " + node.unusable_cards);
    }
    num_slots += node.slot_cards.size();
    for (const int64_t index : node.slot_cards) {
      if (const NodeCard* const card = find_card(node, index)) {
        used.push_back(card);
      }
    }
    for (const NodeCard& card : node.cards) {
      if (seen.insert(name_of(node) + ' ' + key_of(card)).second) {
        all.push_back(&card);
      }
    }
  }
  DeviceChoice choice;
  choice.device = settled_device(config, !used.empty());
  const bool on_cards = computes_on_cards(choice.device);
  configs::RunConfig settled = config;
  settled.device = choice.device;
  std::vector<NodeCard> computing;
  for (const NodeCard* card : used) computing.push_back(*card);
  if (config.precision == configs::Precision::kAuto) {
    const PrecisionChoice precision = choose_precision(settled, computing);
    settled.precision = precision.precision;
    settled.checks_float16 = precision.checks_float16;
    if (on_cards && config.command == "train") choice.reason = precision.reason;
  }
  choice.precision = settled.precision;
  choice.checks_float16 = settled.checks_float16;
  const std::string precision = precision_text(settled);
  if (!on_cards) {
    choice.text = "CPU, " + precision;
    if (!all.empty()) {
      choice.warning =
          "the run is on the CPU, and " + kinds_text(all) +
          (all.size() == 1 ? " is idle" : " are idle") +
          (looks_at_tiles(config) ? ": tiles are looked at on the CPU"
                                  : ": --device auto uses them");
    } else if (!unusable.empty() && config.device != kCpuDevice) {
      choice.warning = "the run is on the CPU; on " + joined(unusable, "; on ");
    }
  } else if (used.empty()) {
    choice.text = counted(static_cast<int64_t>(num_slots), "worker") +
                  " on cards " + choice.device + ", " + precision;
  } else {
    choice.text = kinds_text(used) + ", " + precision +
                  (used.size() < all.size()
                       ? cat(" (", all.size() - used.size(), " of ",
                             counted(static_cast<int64_t>(all.size()), "card"),
                             " without a worker)")
                       : "");
  }
  return choice;
}

planner::CardSpeed card_of_run(
    const configs::RunConfig& config, std::span<const Node> nodes,
    const std::vector<layers::LayerCost>& layers,
    const std::vector<configs::CardMeasurement>& measurements) {
  // yolov5s's work for an image of 640 px.
  constexpr double kFlopsOfImage = 5e10;
  constexpr double kBytesOfImage = 9e8;
  if (!computes_on_cards(config.device)) return {};
  std::map<std::string, planner::CardSpeed> kinds;
  for (const Node& node : nodes) {
    for (const int64_t index : node.slot_cards) {
      const NodeCard* const card = find_card(node, index);
      if (card == nullptr || kinds.contains(card->name)) continue;
      kinds[card->name] = planner::with_measurement(
          planner::speed_of_card(card->name), config, layers, measurements);
    }
  }
  planner::CardSpeed slowest;
  double most = 0;
  for (const auto& [name, card] : kinds) {
    const double seconds =
        card.time_scale * (kFlopsOfImage / card.flops_for(config) +
                           kBytesOfImage / card.bytes_per_second);
    if (seconds <= most) continue;
    most = seconds;
    slowest = card;
  }
  return slowest;
}

}  // namespace headroom::coordinator
