#include "worker/checkpoint/state_restore.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/state_stream.h"

namespace headroom::checkpoint {
namespace {

using Json = nlohmann::json;
using LayerName = std::pair<std::string, int64_t>;  // buffer, layer

Json describe(const std::vector<HostStateSnapshot>& held) {
  Json states = Json::array();
  for (const HostStateSnapshot& state : held) {
    Json parts = Json::array();
    for (const HeldPart& part : state.parts) {
      parts.push_back(
          {part.buffer, part.layer, part.begin, part.values.numel()});
    }
    states.push_back({counters_to_text(state.counters), state.newest_line,
                      std::move(parts)});
  }
  return states;
}

std::vector<StateOffer> offers_of(const std::vector<Json>& ranks) {
  std::vector<StateOffer> offers;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t index = 0; index < ranks[rank].size(); ++index) {
      const Json& state = ranks[rank][index];
      StateOffer offer;
      offer.rank = static_cast<int>(rank);
      offer.index = static_cast<int64_t>(index);
      offer.step =
          counters_from_text(state.at(0).get<std::string>()).committed_steps;
      for (const Json& part : state.at(2)) {
        offer.ranges.push_back(
            {part.at(0).get<std::string>(), part.at(1).get<int64_t>(),
             part.at(2).get<int64_t>(), part.at(3).get<int64_t>()});
      }
      offers.push_back(std::move(offer));
    }
  }
  return offers;
}

// The layers of the whole state; rank 0 has the list of all stages.
std::vector<HeldRange> ranges_needed(const StateStream& stream) {
  std::vector<HeldRange> needed;
  for (const StateStream::Block& block : stream.blocks()) {
    needed.push_back({block.name, block.layer, 0, block.size});
  }
  return needed;
}

// The decision of rank 0 that all ranks carry out: counters, the last line of
// steps.jsonl, and for each piece its rank, snapshot and range.
Json choose(const StateStream& stream, const std::vector<Json>& ranks,
            int64_t at_least) {
  const std::vector<StateOffer> offers = offers_of(ranks);
  const auto choice = choose_state(ranges_needed(stream), offers);
  if (!choice || choice->step < at_least) return Json::object();
  Json pieces = Json::array();
  for (const StatePiece& piece : choice->pieces) {
    pieces.push_back({piece.rank, piece.index, piece.range});
  }
  const auto source = [&](const auto& place) -> const Json& {
    return ranks.at(static_cast<size_t>(place.rank))
        .at(static_cast<size_t>(place.index));
  };
  Json newest_line = "";  // copies that a rank keeps for another have no line
  for (const StateOffer& offer : offers) {
    if (offer.step != choice->step || newest_line != "") continue;
    newest_line = source(offer).at(1);
  }
  return {{"counters", source(choice->pieces.front()).at(0)},
          {"newest_line", std::move(newest_line)},
          {"pieces", std::move(pieces)}};
}

// Whole layers at rank 0, by name.
using Layers = std::map<LayerName, at::Tensor>;

void put(Layers& layers, const HeldPart& part, const at::Tensor& values) {
  const at::Tensor& layer = layers.at({part.buffer, part.layer});
  // Values beyond the layer's end are padding of another layout.
  const int64_t size = std::min(values.numel(), layer.numel() - part.begin);
  layer.narrow(0, part.begin, size).copy_(values.narrow(0, 0, size));
}

Layers fetch(const Json& pieces, const std::vector<HostStateSnapshot>& held,
             const std::vector<Json>& ranks, const StateStream& stream,
             collectives::Communicator& world) {
  Layers layers;
  if (world.rank() == 0) {
    for (const StateStream::Block& block : stream.blocks()) {
      at::Tensor layer = at::empty({block.size}, block.type);
      layer.zero_();
      layers[{block.name, block.layer}] = std::move(layer);
    }
  }
  for (const Json& piece : pieces) {
    const int rank = piece.at(0).get<int>();
    const auto index = piece.at(1).get<size_t>();
    const auto range = piece.at(2).get<size_t>();
    if (rank == world.rank()) {
      const HeldPart& part = held.at(index).parts.at(range);
      if (rank == 0) {
        put(layers, part, part.values);
      } else {
        world.send(part.values, 0);
      }
    } else if (world.rank() == 0) {
      const Json& about =
          ranks.at(static_cast<size_t>(rank)).at(index).at(2).at(range);
      HeldPart part{about.at(0).get<std::string>(),
                    about.at(1).get<int64_t>(),
                    about.at(2).get<int64_t>(),
                    {}};
      part.values = at::empty({about.at(3).get<int64_t>()},
                              layers.at({part.buffer, part.layer}).options());
      world.recv(part.values, rank);
      put(layers, part, part.values);
    }
  }
  return layers;
}

}  // namespace

std::optional<RestoreChoice> choose_state(
    const std::vector<HeldRange>& needed,
    const std::vector<StateOffer>& offers) {
  std::set<int64_t, std::greater<>> steps;
  for (const StateOffer& offer : offers) steps.insert(offer.step);
  for (const int64_t step : steps) {
    // Ranges of each layer at this step, keyed by where they begin.
    std::map<LayerName, std::map<int64_t, std::pair<int64_t, StatePiece>>>
        there;
    for (const StateOffer& offer : offers) {
      if (offer.step != step) continue;
      for (size_t i = 0; i < offer.ranges.size(); ++i) {
        const HeldRange& range = offer.ranges[i];
        auto [entry, added] =
            there[{range.buffer, range.layer}].try_emplace(range.begin);
        if (!added && entry->second.first >= range.size) continue;
        entry->second = {range.size,
                         {offer.rank, offer.index, static_cast<int64_t>(i)}};
      }
    }
    RestoreChoice choice{step, {}};
    bool is_whole = !needed.empty();
    for (const HeldRange& layer : needed) {
      int64_t end = 0;
      for (const auto& [begin, piece] : there[{layer.buffer, layer.layer}]) {
        if (begin > end || end >= layer.size) break;
        if (begin + piece.first <= end) continue;
        choice.pieces.push_back(piece.second);
        end = begin + piece.first;
      }
      is_whole = is_whole && end >= layer.size;
    }
    if (is_whole) return choice;
  }
  return std::nullopt;
}

std::optional<RestoredState> restore_state(
    const std::vector<HostStateSnapshot>& held, step::TrainingState& state,
    int64_t at_least) {
  HEADROOM_CHECK(state.mesh() != nullptr, "ranks restore together");
  const at::NoGradGuard no_grad;
  const activations::CountingAllocator::HostMemory host;
  collectives::Communicator& world = state.mesh()->world;
  StateStream stream(state.mesh());
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    stream.add(buffer, "");
  }
  stream.connect();
  std::vector<Json> ranks;
  for (const std::string& text :
       collectives::gather_bytes(world, describe(held).dump())) {
    ranks.push_back(Json::parse(text));
  }
  std::string text;
  if (world.rank() == 0) text = choose(stream, ranks, at_least).dump();
  const Json choice = Json::parse(collectives::broadcast_bytes(world, text, 0));
  if (choice.empty()) return std::nullopt;
  const Layers layers = fetch(choice.at("pieces"), held, ranks, stream, world);
  stream.distribute_layers(
      [&](const StateStream::Block& block) -> const at::Tensor& {
        return layers.at({block.name, block.layer});
      });
  state.counters = counters_from_text(choice.at("counters").get<std::string>());
  return RestoredState{state.counters.committed_steps,
                       choice.at("newest_line").get<std::string>()};
}

}  // namespace headroom::checkpoint
