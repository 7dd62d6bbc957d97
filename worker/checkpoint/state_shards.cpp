#include "worker/checkpoint/state_shards.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLayers = "layers";  // key of the metadata

std::string layer_name(const std::string& buffer, int64_t layer) {
  return cat(buffer, "/", layer);
}

std::vector<weights::TensorDescription> descriptions_of(
    const std::vector<HeldPart>& parts) {
  std::vector<weights::TensorDescription> tensors;
  for (const HeldPart& part : parts) {
    tensors.push_back(
        {cat(layer_name(part.buffer, part.layer), "/", part.begin),
         part.values.scalar_type(),
         {part.values.numel()}});
  }
  return tensors;
}

}  // namespace

ShardJob::ShardJob(fs::path folder, int rank, std::vector<HeldPart> parts,
                   const std::vector<StateStream::Block>& blocks)
    : folder_(std::move(folder)),
      parts_(std::move(parts)),
      metadata_({{"format", "headroom-checkpoint-shard"}}) {
  file_.name = shard_name(rank);
  if (!blocks.empty()) metadata_[kLayers] = blocks_to_text(blocks);
  // The order of files.
  std::ranges::stable_sort(
      parts_, std::ranges::greater{},
      [](const HeldPart& part) { return part.values.element_size(); });
}

ShardJob::~ShardJob() {
  writer_.reset();
  std::error_code error;
  if (!is_kept_) fs::remove(folder_ / file_.name, error);
}

void ShardJob::begin() {
  std::error_code error;
  fs::create_directories(folder_, error);
  std::vector<weights::TensorDescription> tensors = descriptions_of(parts_);
  require_room(folder_, tensors);
  writer_ = std::make_unique<weights::SafetensorsWriter>(
      folder_ / file_.name, std::move(tensors), metadata_);
}

bool ShardJob::advance() {
  try {
    return advance_or_throw();
  } catch (...) {
    writer_.reset();  // also removes what was written so far
    parts_.clear();
    throw;
  }
}

bool ShardJob::advance_or_throw() {
  if (is_abandoned_) {
    throw Error("checkpoint", "a worker was lost while it was written", "",
                ExitCode::kResource);
  }
  if (!writer_) {
    begin();
  } else if (next_ < parts_.size()) {
    writer_->write(parts_[next_++].values);
  } else {
    writer_->commit();
    file_.bytes = writer_->num_bytes();
    file_.digest = writer_->digest();
    parts_.clear();
    return false;
  }
  return true;
}

StateReader::StateReader(const fs::path& folder,
                         const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const fs::path file = folder / name;
    if (first_file_.empty()) first_file_ = file;
    readers_.push_back(std::make_unique<weights::SafetensorsReader>(file));
    if (is_shard_name(name)) {
      add_ranges(*readers_.back());
    } else {
      add_whole(*readers_.back());
    }
  }
  for (auto& [layer, ranges] : ranges_) {
    std::ranges::sort(ranges, {}, &Range::begin);
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    for (size_t entry = 0; entry < blocks_[block].entries.size(); ++entry) {
      places_[blocks_[block].entries[entry].name] = {block, entry};
    }
  }
  if (!blocks_.empty()) tensors_ = tensors_of(blocks_);
  require_all(folder);
}

void StateReader::add_whole(weights::SafetensorsReader& reader) {
  for (const weights::SafetensorsEntry& entry : reader.header().entries) {
    entries_[entry.name] = &entry;
    tensors_.push_back(
        {entry.name, weights::scalar_type_of(entry.type), entry.shape});
  }
}

void StateReader::add_ranges(weights::SafetensorsReader& reader) {
  const auto layers = reader.header().metadata.find(kLayers);
  if (layers != reader.header().metadata.end()) {
    blocks_ = blocks_from_text(layers->second);
  }
  for (const weights::SafetensorsEntry& entry : reader.header().entries) {
    const size_t slash = entry.name.rfind('/');
    const auto begin = slash == std::string::npos
                           ? std::nullopt
                           : parse_whole(entry.name.substr(slash + 1));
    if (!begin) continue;
    ranges_[entry.name.substr(0, slash)].push_back({*begin, &reader, &entry});
  }
}

const std::vector<StateReader::Range>& StateReader::ranges_of(
    const StateStream::Block& block) const {
  static const std::vector<Range> kNone;
  const auto found = ranges_.find(layer_name(block.name, block.layer));
  return found == ranges_.end() ? kNone : found->second;
}

void StateReader::require_all(const fs::path& folder) const {
  if (entries_.empty() && blocks_.empty()) {
    throw damaged_checkpoint(folder, "has no list of its layers");
  }
  for (const StateStream::Block& block : blocks_) {
    int64_t end = 0;
    for (const Range& range : ranges_of(block)) {
      if (range.begin > end ||
          weights::scalar_type_of(range.entry->type) != block.type) {
        break;
      }
      end = std::max(end, range.begin + range.entry->shape.at(0));
    }
    if (end < block.size) {
      throw damaged_checkpoint(folder, "lacks elements from " +
                                           std::to_string(end) + " on of " +
                                           layer_name(block.name, block.layer));
    }
  }
}

const at::Tensor& StateReader::layer_of(size_t block) {
  if (layer_.defined() && newest_ == block) return layer_;
  const StateStream::Block& layer = blocks_[block];
  layer_ = at::zeros({layer.size}, layer.type);
  newest_ = block;
  for (const Range& range : ranges_of(layer)) {
    const at::Tensor values = range.reader->read(*range.entry);
    const int64_t size = std::min(values.numel(), layer.size - range.begin);
    layer_.narrow(0, range.begin, size).copy_(values.narrow(0, 0, size));
  }
  return layer_;
}

at::Tensor StateReader::read(const std::string& name) {
  const at::NoGradGuard no_grad;
  if (blocks_.empty()) return readers_.front()->read(*entries_.at(name));
  const Place& place = places_.at(name);
  return view_of(layer_of(place.block),
                 blocks_[place.block].entries[place.entry]);
}

}  // namespace headroom::checkpoint
