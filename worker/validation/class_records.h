// ClassRecords: what average precision needs of a rank's detections, by class,
// and RecordMerge, which ranks the records of all ranks on rank 0.
//
// Memory: 12 bytes a detection on the rank that found it (while vectors grow,
// up to 24); the records of a class are freed once they are sent or merged.
// Rank 0 receives from every other rank in pieces that together take at most
// kMergeBytes, however many records a class or a rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "parallel/collectives/communicator.h"

namespace headroom::validation {

// A detection after matching, as metrics::bits_of().
struct FoundRecord {
  float confidence = 0;
  int32_t class_index = 0;
  uint16_t yolov5 = 0;  // thresholds at which it is correct, as in YOLOv5
  uint16_t coco = 0;    // the same as in pycocotools, or kNotCounted
};
// Beyond COCO's number of detections per image and class.
inline constexpr uint16_t kNotCounted = 0xffff;

// Without its class, which is that of the list it is in.
struct ClassRecord {
  float confidence = 0;
  uint32_t turn = 0;  // which of its rank's batches it is from
  uint16_t yolov5 = 0;
  uint16_t coco = 0;
};

class ClassRecords {
 public:
  explicit ClassRecords(size_t num_classes) : by_class_(num_classes) {}

  // Adds the records of this rank's next batch. Their order matters where
  // confidences are equal.
  void add_batch(const std::vector<FoundRecord>& records);
  size_t num_classes() const { return by_class_.size(); }
  int64_t count(size_t class_index) const {
    return std::ssize(by_class_[class_index]);
  }
  // Removes a class's records and returns them in descending confidence.
  std::vector<ClassRecord> take_sorted(size_t class_index);

 private:
  std::vector<std::vector<ClassRecord>> by_class_;
  uint32_t turn_ = 0;
};

inline constexpr int64_t kMergeBytes = int64_t{64} << 20;

// The other ranks call this, while rank 0 has a RecordMerge.
void send_records(collectives::Communicator& ranks, ClassRecords mine,
                  int64_t most_bytes = kMergeBytes);

// On rank 0: the records of all ranks, class by class, in descending
// confidence. Records of equal confidence are in the order of their batches,
// where rank r's batch of turn t is number t * ranks + r.
class RecordMerge {
 public:
  // `counts`: by rank, the number of records of each class.
  RecordMerge(collectives::Communicator& ranks, ClassRecords mine,
              std::vector<std::vector<int64_t>> counts,
              int64_t most_bytes = kMergeBytes);

  // Calls take(record) for each record of the next class.
  template <typename Take>
  void next_class(const Take& take) {
    begin_class();
    while (!heads_.empty()) {
      const Head first = heads_.top();
      heads_.pop();
      take(first.record);
      push_next(first.rank);
    }
    ++class_index_;
  }

 private:
  struct Head {
    ClassRecord record;
    int rank = 0;
  };
  struct IsLater {
    bool operator()(const Head& a, const Head& b) const;
  };
  // What has arrived of one rank's records, which come in the order of classes.
  struct Stream {
    int64_t in_class = 0;  // records of the current class that are left
    int64_t to_receive = 0;
    std::vector<ClassRecord> piece = {};
    size_t next = 0;  // in `piece`
  };

  void begin_class();
  void push_next(int rank);
  void receive(Stream& stream, int rank);

  collectives::Communicator& ranks_;
  ClassRecords mine_;
  const std::vector<std::vector<int64_t>> counts_;
  const size_t most_in_piece_;
  std::vector<Stream> streams_;  // by rank
  std::priority_queue<Head, std::vector<Head>, IsLater> heads_;
  size_t class_index_ = 0;
};

}  // namespace headroom::validation
