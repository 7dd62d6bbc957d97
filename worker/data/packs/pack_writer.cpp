#include "worker/data/packs/pack_writer.h"

#include <xxhash.h>

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/data/packs/pack_index.h"
#include "worker/data/packs/tar_format.h"

namespace headroom::packs {

namespace fs = std::filesystem;

PackWriter::PackWriter(fs::path folder, std::string split, uint64_t shard_bytes)
    : folder_(std::move(folder)),
      split_(std::move(split)),
      shard_bytes_(shard_bytes),
      digest_(XXH3_createState(),
              [](XXH3_state_s* state) { XXH3_freeState(state); }) {}

PackWriter::~PackWriter() = default;

uint64_t PackWriter::total_bytes() const {
  uint64_t bytes = 0;
  for (const PackedShard& shard : content_.shards) bytes += shard.bytes;
  return bytes;
}

void PackWriter::write(std::string_view bytes) {
  shard_->write(bytes.data(), bytes.size());
  XXH3_64bits_update(digest_.get(), bytes.data(), bytes.size());
  content_.shards.back().bytes += bytes.size();
}

void PackWriter::append(std::string_view name, std::string_view bytes) {
  write(tar_header(name, bytes.size()));
  write(bytes);
  write(tar_padding(bytes.size()));
}

void PackWriter::begin_shard() {
  const auto number = static_cast<uint32_t>(content_.shards.size());
  shard_ = std::make_unique<AtomicFile>(folder_ / shard_name(split_, number));
  content_.shards.emplace_back();
  XXH3_64bits_reset(digest_.get());
}

void PackWriter::end_shard() {
  write(tar_end());
  shard_->commit();
  shard_.reset();
  content_.shards.back().digest = XXH3_64bits_digest(digest_.get());
}

void PackWriter::add(const Image& image) {
  HEADROOM_CHECK(!image.bytes.empty() && image.bytes.size() <= kMostFileBytes,
                 cat(image.bytes.size(), " bytes to pack"));
  const uint64_t room = image.bytes.size() + image.label_text.size() +
                        8 * kTarBlock + 4 * image.name.size();
  if (shard_ != nullptr && content_.shards.back().bytes + room > shard_bytes_) {
    end_shard();
  }
  if (shard_ == nullptr) begin_shard();

  IndexedImage entry;
  entry.shard = static_cast<uint32_t>(content_.shards.size() - 1);
  entry.bytes = image.bytes.size();
  entry.digest = XXH3_64bits(image.bytes.data(), image.bytes.size());
  entry.offset = content_.shards.back().bytes +
                 tar_header(image.name, image.bytes.size()).size();
  entry.height = image.height;
  entry.width = image.width;
  entry.has_colours = image.has_colours ? 1 : 0;
  append(image.name, image.bytes);
  append(image.label_name, image.label_text);
  content_.add(image.name, entry, image.labels);
  IndexedImage& added = content_.images.back();
  added.check = check_of(image.name, added, image.labels);
}

void PackWriter::finish() {
  if (shard_ != nullptr) end_shard();
  const fs::path file = folder_ / index_name(split_);
  content_.order_names();
  write_whole_file(file, index_bytes(content_));
}

}  // namespace headroom::packs
