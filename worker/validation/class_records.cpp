#include "worker/validation/class_records.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::validation {
namespace {

static_assert(sizeof(ClassRecord) == 12);

// The records of a piece. Larger ones only take more memory.
size_t records_in_piece(int ranks, int64_t most_bytes) {
  constexpr int64_t kMostBytes = int64_t{4} << 20;
  const int64_t bytes =
      std::min(kMostBytes, most_bytes / std::max(1, ranks - 1));
  return static_cast<size_t>(
      std::max<int64_t>(1, bytes / int64_t{sizeof(ClassRecord)}));
}

at::Tensor bytes_at(std::vector<ClassRecord>& records) {
  return at::from_blob(
      records.data(),
      {static_cast<int64_t>(records.size() * sizeof(ClassRecord))}, at::kByte);
}

}  // namespace

void ClassRecords::add_batch(const std::vector<FoundRecord>& records) {
  for (const FoundRecord& record : records) {
    HEADROOM_CHECK(record.class_index >= 0 &&
                       static_cast<size_t>(record.class_index) < num_classes(),
                   cat("class ", record.class_index, " of a detection, ",
                       num_classes(), " classes"));
    by_class_[static_cast<size_t>(record.class_index)].push_back(
        {record.confidence, turn_, record.yolov5, record.coco});
  }
  ++turn_;
}

std::vector<ClassRecord> ClassRecords::take_sorted(size_t class_index) {
  std::vector<ClassRecord> records = std::move(by_class_[class_index]);
  by_class_[class_index] = {};
  std::stable_sort(records.begin(), records.end(),
                   [](const ClassRecord& a, const ClassRecord& b) {
                     return a.confidence > b.confidence;
                   });
  return records;
}

void send_records(collectives::Communicator& ranks, ClassRecords mine,
                  int64_t most_bytes) {
  const size_t most = records_in_piece(ranks.size(), most_bytes);
  std::vector<ClassRecord> piece;
  const auto send = [&] {
    if (!piece.empty()) ranks.send(bytes_at(piece), /*to=*/0);
    piece.clear();
  };
  for (size_t c = 0; c < mine.num_classes(); ++c) {
    for (const ClassRecord& record : mine.take_sorted(c)) {
      piece.push_back(record);
      if (piece.size() == most) send();
    }
  }
  send();
}

RecordMerge::RecordMerge(collectives::Communicator& ranks, ClassRecords mine,
                         std::vector<std::vector<int64_t>> counts,
                         int64_t most_bytes)
    : ranks_(ranks),
      mine_(std::move(mine)),
      counts_(std::move(counts)),
      most_in_piece_(records_in_piece(ranks.size(), most_bytes)) {
  for (const std::vector<int64_t>& own : counts_) {
    streams_.push_back(
        {.to_receive = std::accumulate(own.begin(), own.end(), int64_t{0})});
  }
}

bool RecordMerge::IsLater::operator()(const Head& a, const Head& b) const {
  if (a.record.confidence != b.record.confidence) {
    return a.record.confidence < b.record.confidence;
  }
  return std::pair(a.record.turn, a.rank) > std::pair(b.record.turn, b.rank);
}

void RecordMerge::begin_class() {
  streams_[0].piece = mine_.take_sorted(class_index_);
  streams_[0].next = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    streams_[at].in_class = counts_[at].at(class_index_);
    push_next(rank);
  }
}

void RecordMerge::push_next(int rank) {
  Stream& stream = streams_[static_cast<size_t>(rank)];
  if (stream.in_class == 0) return;
  --stream.in_class;
  if (stream.next == stream.piece.size()) receive(stream, rank);
  heads_.push({stream.piece[stream.next++], rank});
}

void RecordMerge::receive(Stream& stream, int rank) {
  HEADROOM_CHECK(rank > 0 && stream.to_receive > 0,
                 cat("no record of rank ", rank, " is left"));
  stream.piece.resize(
      std::min(most_in_piece_, static_cast<size_t>(stream.to_receive)));
  ranks_.recv(bytes_at(stream.piece), rank);
  stream.to_receive -= std::ssize(stream.piece);
  stream.next = 0;
}

}  // namespace headroom::validation
