#include "worker/data/packs/pack_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/base/check.h"
#include "worker/data/packs/tar_format.h"

namespace headroom::packs {

namespace fs = std::filesystem;

PackWriter::PackWriter(fs::path folder, std::string split, uint64_t shard_bytes)
    : folder_(std::move(folder)),
      split_(std::move(split)),
      shard_bytes_(shard_bytes) {}

PackWriter::~PackWriter() = default;

uint64_t PackWriter::total_bytes() const {
  return std::accumulate(content_.shard_bytes.begin(),
                         content_.shard_bytes.end(), uint64_t{0});
}

void PackWriter::append(std::string_view name, std::string_view bytes) {
  const std::string header = tar_header(name, bytes.size());
  const std::string padding = tar_padding(bytes.size());
  shard_->write(header.data(), header.size());
  shard_->write(bytes.data(), bytes.size());
  shard_->write(padding.data(), padding.size());
  content_.shard_bytes.back() += header.size() + bytes.size() + padding.size();
}

void PackWriter::end_shard() {
  const std::string end = tar_end();
  shard_->write(end.data(), end.size());
  content_.shard_bytes.back() += end.size();
  shard_->commit();
  shard_.reset();
}

void PackWriter::add(const Image& image) {
  HEADROOM_CHECK(!image.bytes.empty() && image.bytes.size() <= kMostFileBytes,
                 std::to_string(image.bytes.size()) + " bytes to pack");
  const uint64_t room = image.bytes.size() + image.label_text.size() +
                        8 * kTarBlock + 2 * image.name.size();
  if (shard_ != nullptr && content_.shard_bytes.back() + room > shard_bytes_) {
    end_shard();
  }
  if (shard_ == nullptr) {
    const auto number = static_cast<uint32_t>(content_.shard_bytes.size());
    shard_ = std::make_unique<AtomicFile>(folder_ / shard_name(split_, number));
    content_.shard_bytes.push_back(0);
  }
  append(image.name, image.bytes);
  PackedPlace place;
  place.shard = static_cast<uint32_t>(content_.shard_bytes.size() - 1);
  place.bytes = image.bytes.size();
  place.offset = content_.shard_bytes.back() - place.bytes -
                 tar_padding(place.bytes).size();
  place.digest = XXH3_64bits(image.bytes.data(), image.bytes.size());
  place.height = image.height;
  place.width = image.width;
  place.has_colours = image.has_colours ? 1 : 0;
  place.check = check_of(image.name, place, image.labels);
  append(fs::path(image.name).replace_extension(".txt").string(),
         image.label_text);

  content_.places.push_back(place);
  content_.names += image.name;
  content_.name_ends.push_back(content_.names.size());
  const ImageLabels& own = image.labels;
  const uint64_t points_before = labels_.points.size();
  labels_.boxes.insert(labels_.boxes.end(), own.boxes.begin(), own.boxes.end());
  labels_.box_ends.push_back(labels_.boxes.size());
  labels_.points.insert(labels_.points.end(), own.points.begin(),
                        own.points.end());
  for (const uint64_t end : own.point_ends) {
    labels_.point_ends.push_back(points_before + end - own.first_point);
  }
}

void PackWriter::finish() {
  if (shard_ != nullptr) end_shard();
  content_.by_name.resize(content_.places.size());
  std::iota(content_.by_name.begin(), content_.by_name.end(), 0U);
  const auto name_of = [this](uint32_t image) {
    const uint64_t begin = image == 0 ? 0 : content_.name_ends[image - 1];
    return std::string_view(content_.names)
        .substr(begin, content_.name_ends[image] - begin);
  };
  std::ranges::sort(content_.by_name, {}, name_of);
  write_whole_file(folder_ / index_name(split_),
                   index_bytes(content_, labels_));
}

}  // namespace headroom::packs
