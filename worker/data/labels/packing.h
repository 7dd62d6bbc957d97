// packing: writes a data set as packs (packs/pack_index.h). Boxes and order are
// those that training would use, so that training on the packs computes exactly
// what training on the files computes. (One difference: images that cannot be
// read are left out, so a plan does not count their boxes.)
//
// Errors: throws Error, and then writes nothing. Exit 2 for an image that
// cannot be packed, with its name and what to do; exit 4 for a split that
// training would refuse; exit 5 if the folder cannot be written.
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
  std::filesystem::path output;  // must not exist, or be an empty folder
  // The largest length of an archive. Larger archives mean fewer files; smaller
  // archives are easier to copy.
  uint64_t shard_bytes = uint64_t{1} << 30;
  IndexOptions index;
  std::function<bool()> stopped;
};

struct PackedSplit {
  DataReport report;
  int64_t shards = 0;
  uint64_t bytes = 0;   // total bytes of the shards
  std::string refusal;  // why the test split was not packed; "" if it was
};

// The name of an image in its pack: its path relative to the data file's
// folder, without leading "..".
std::string packed_name(const std::filesystem::path& image,
                        const std::filesystem::path& data_folder);

// Packs train, val and, if the data file names it, test.
std::vector<PackedSplit> pack_data(const configs::DataConfig& config,
                                   const PackingRequest& request);

// The summary as text for people, and as JSON for programs.
std::string packing_text(const std::vector<PackedSplit>& splits,
                         const std::filesystem::path& output);
std::string packing_json(const std::vector<PackedSplit>& splits,
                         const std::filesystem::path& output);

}  // namespace headroom::labels
