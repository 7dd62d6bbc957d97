// DetectionJournal: what an unfinished run has found, so that --resume goes on
// where it ended. It lies beside the results until they are complete:
//
//   detect-DIGEST.journal   DIGEST: of everything that the results depend on
//     "HEADRDET" | version u32 | length u32 | CRC-32C u32 | what it is about |
//     then per record: length u32 | CRC-32C u32 | payload
//
// Numbers are little-endian. A record's CRC goes on from the one before it, so
// that nothing counts behind a record that is torn, removed or exchanged: a
// kill loses the record that was being written, a power failure perhaps some
// more, and their pictures are looked at again.
//
// A run does its work in one order, and records are read in this order, one at
// a time: memory does not grow with their number.
//
// Errors: Error (exit 5) where the file cannot be written; (exit 2): another
// process writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/metrics/detection.h"

namespace headroom::detect {

// What results depend on, and the command, with --resume, that asks for them.
struct JournalSubject {
  std::string weights;               // a digest
  std::string sources;               // a digest of paths, sizes and times
  std::vector<std::string> options;  // "--tile=64", in any order
  std::string command;               // people read it

  std::string file_name() const;
  // What of `other` is different: "other weights", "other options (…)".
  std::string difference_to(const JournalSubject& other) const;
};

// The digest of files as far as they are known without being read.
std::string sources_digest(const std::vector<std::filesystem::path>& files);

struct JournalRecord {
  enum class Kind : uint8_t { kTile, kImage, kSeamTile, kPicture, kVideo };
  Kind kind = Kind::kImage;
  int64_t unit = 0;    // the number of an image, mosaic or video
  int64_t number = 0;  // the number of its tile or picture
  int64_t height = 0, width = 0;
  std::vector<metrics::Detection> detections;
};

class DetectionJournal {
 public:
  // A journal of nothing, in place of one that is there.
  static std::unique_ptr<DetectionJournal> begin(
      const std::filesystem::path& folder, const JournalSubject& subject);
  // Goes on with a file that unfinished_runs() found.
  static std::unique_ptr<DetectionJournal> go_on(
      const std::filesystem::path& file);
  ~DetectionJournal();
  DetectionJournal(const DetectionJournal&) = delete;
  DetectionJournal& operator=(const DetectionJournal&) = delete;

  // The next record, if it is of that kind and unit.
  std::optional<JournalRecord> next(JournalRecord::Kind kind, int64_t unit);
  // Are there records that next() did not give?
  bool has_more() const { return next_.has_value(); }
  // Writes a record behind those that next() gave; others are forgotten.
  void append(const JournalRecord& record);
  // Removes the file: the results are complete.
  void remove();

 private:
  DetectionJournal(std::filesystem::path file, int descriptor)
      : file_(std::move(file)), descriptor_(descriptor) {}
  // `now_at`: the name that the file has now.
  static std::unique_ptr<DetectionJournal> open(
      const std::filesystem::path& file, const std::filesystem::path& now_at,
      int flags);
  void read_next();
  [[noreturn]] void fail() const;

  const std::filesystem::path file_;
  const int descriptor_;
  int64_t end_ = 0;          // bytes of what was given or written
  uint32_t chain_ = 0;       // the last one's CRC
  int64_t next_end_ = 0;     // bytes with the next record
  uint32_t next_chain_ = 0;  // its CRC
  std::optional<JournalRecord> next_;
};

// A journal that no process holds.
struct UnfinishedRun {
  std::filesystem::path journal;
  JournalSubject subject;
};

// Those in `folder`, and, unless `only_there`, in FOLDER2, FOLDER3, …; the
// newest first. Files that are no journals of this build are passed over.
std::vector<UnfinishedRun> unfinished_runs(const std::filesystem::path& folder,
                                           bool only_there);

}  // namespace headroom::detect
