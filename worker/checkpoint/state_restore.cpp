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
using RowName = std::pair<std::string, int64_t>;  // buffer, row

Json describe(const std::vector<HeldState>& held) {
  Json states = Json::array();
  for (const HeldState& state : held) {
    Json parts = Json::array();
    for (const HeldPart& part : state.parts) {
      parts.push_back({part.buffer, part.row, part.begin, part.values.numel()});
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

// Of all stages, at rank 0.
std::vector<HeldRange> ranges_needed(const StateStream& stream) {
  std::vector<HeldRange> needed;
  for (const StateStream::Block& block : stream.blocks()) {
    needed.push_back({block.name, block.row, 0, block.size});
  }
  return needed;
}

// What rank 0 decides and all carry out: counters, the newest line, and for
// each piece who has it and how much it is.
Json choose(const StateStream& stream, const std::vector<Json>& ranks,
            int64_t at_least) {
  const std::vector<StateOffer> offers = offers_of(ranks);
  const auto choice = choose_state(ranges_needed(stream), offers);
  if (!choice || choice->step < at_least) return Json::object();
  Json pieces = Json::array();
  for (const StatePiece& piece : choice->pieces) {
    pieces.push_back({piece.rank, piece.index, piece.range});
  }
  const StatePiece& first = choice->pieces.front();
  const Json& source = ranks.at(static_cast<size_t>(first.rank))
                           .at(static_cast<size_t>(first.index));
  return {{"counters", source.at(0)},
          {"newest_line", source.at(1)},
          {"pieces", std::move(pieces)}};
}

// At rank 0: whole rows, by name.
using Rows = std::map<RowName, at::Tensor>;

void put(Rows& rows, const HeldPart& part, const at::Tensor& values) {
  const at::Tensor& row = rows.at({part.buffer, part.row});
  // Beyond the row's end lies what another layout padded it with.
  const int64_t size = std::min(values.numel(), row.numel() - part.begin);
  row.narrow(0, part.begin, size).copy_(values.narrow(0, 0, size));
}

Rows fetch(const Json& pieces, const std::vector<HeldState>& held,
           const std::vector<Json>& ranks, const StateStream& stream,
           collectives::Communicator& world) {
  Rows rows;
  if (world.rank() == 0) {
    for (const StateStream::Block& block : stream.blocks()) {
      at::Tensor row = at::empty({block.size}, block.type);
      row.zero_();
      rows[{block.name, block.row}] = std::move(row);
    }
  }
  for (const Json& piece : pieces) {
    const int rank = piece.at(0).get<int>();
    const auto index = piece.at(1).get<size_t>();
    const auto range = piece.at(2).get<size_t>();
    if (rank == world.rank()) {
      const HeldPart& part = held.at(index).parts.at(range);
      if (rank == 0) {
        put(rows, part, part.values);
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
                              rows.at({part.buffer, part.row}).options());
      world.recv(part.values, rank);
      put(rows, part, part.values);
    }
  }
  return rows;
}

}  // namespace

std::optional<RestoreChoice> choose_state(
    const std::vector<HeldRange>& needed,
    const std::vector<StateOffer>& offers) {
  std::set<int64_t, std::greater<>> steps;
  for (const StateOffer& offer : offers) steps.insert(offer.step);
  for (const int64_t step : steps) {
    // Ranges of each row at this step, by their begin.
    std::map<RowName, std::map<int64_t, std::pair<int64_t, StatePiece>>> there;
    for (const StateOffer& offer : offers) {
      if (offer.step != step) continue;
      for (size_t i = 0; i < offer.ranges.size(); ++i) {
        const HeldRange& range = offer.ranges[i];
        auto [entry, added] =
            there[{range.buffer, range.row}].try_emplace(range.begin);
        if (!added && entry->second.first >= range.size) continue;
        entry->second = {range.size,
                         {offer.rank, offer.index, static_cast<int64_t>(i)}};
      }
    }
    RestoreChoice choice{step, {}};
    bool is_whole = !needed.empty();
    for (const HeldRange& row : needed) {
      int64_t end = 0;
      for (const auto& [begin, piece] : there[{row.buffer, row.row}]) {
        if (begin > end || end >= row.size) break;
        if (begin + piece.first <= end) continue;
        choice.pieces.push_back(piece.second);
        end = begin + piece.first;
      }
      is_whole = is_whole && end >= row.size;
    }
    if (is_whole) return choice;
  }
  return std::nullopt;
}

std::optional<RestoredState> restore_state(const std::vector<HeldState>& held,
                                           step::TrainingState& state,
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
  const Rows rows = fetch(choice.at("pieces"), held, ranks, stream, world);
  stream.distribute_rows(
      [&](const StateStream::Block& block) -> const at::Tensor& {
        return rows.at({block.name, block.row});
      });
  state.counters = counters_from_text(choice.at("counters").get<std::string>());
  return RestoredState{state.counters.committed_steps,
                       choice.at("newest_line").get<std::string>()};
}

}  // namespace headroom::checkpoint
