// packing: a data set written as packs (packs/pack_index.h), with the boxes and
// in the order that training would use, so that training on the packs computes
// what training on the files does. (Images that cannot be read are left out, so
// a plan no longer counts on their boxes.)
//
// Errors: Error; exit 2 for an image that cannot be packed, named with what to
// do; exit 4 for a split that training would refuse; exit 5 where the folder
// cannot be written. Nothing is written then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/labels/data_report.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {

struct PackingRequest {
  std::filesystem::path output;  // a new folder
  uint64_t shard_bytes = uint64_t{1} << 30;
  IndexOptions index;
  std::function<bool()> stopped;
};

struct PackedSplit {
  DataReport report;
  int64_t shards = 0;
  uint64_t bytes = 0;   // the shards'
  std::string refusal;  // why a test split was not packed; "" if it was
};

// The name of an image in its pack: its path from the data file's folder,
// without leading "..".
std::string packed_name(const std::filesystem::path& image,
                        const std::filesystem::path& data_folder);

// Train, val and, where there is one, test.
std::vector<PackedSplit> pack_data(const configs::DataConfig& config,
                                   const PackingRequest& request);

// What people read, and what programs read.
std::string packing_text(const std::vector<PackedSplit>& splits,
                         const std::filesystem::path& output);
std::string packing_json(const std::vector<PackedSplit>& splits,
                         const std::filesystem::path& output);

}  // namespace headroom::labels
