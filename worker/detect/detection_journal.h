// DetectionJournal: stores the findings of an unfinished run, so that --resume
// can continue it. The file is in the folder of the results until they are
// complete:
//
//   detect.journal
//     "HEADRDET" | version u32 | length u32 | CRC-32C u32 | subject (JSON) |
//     then per record: length u32 | CRC-32C u32 | payload
//
// A folder has one journal, so only the last run in it can be continued. The
// numbers outside of payloads are little-endian; payloads have the byte order
// of the machine and are read only by the same version of headroom. The CRC of
// a record includes all records before it, so all records after an incomplete,
// removed or exchanged one are invalid. A killed process loses the record that
// it was writing. A power failure loses the records of the last seconds, and
// their pictures are examined again.
//
// A run always does its work in the same order, and records are read in that
// order: only one record is in memory.
//
// Errors: Error (exit 5) if the file cannot be written or read; (exit 2) if
// another process writes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/data/tiles/tile_plan.h"
#include "worker/metrics/detection.h"

namespace headroom::detect {

inline constexpr const char* kJournalName = "detect.journal";

// The version of headroom that writes the journal.
std::string journal_version();

// Everything on which the results depend, and the command that continues the
// run.
struct JournalSubject {
  std::string weights;               // a digest
  std::string sources;               // a digest of paths, sizes and times
  std::vector<std::string> options;  // "--tile=64", in any order
  std::string command;               // the command line, for messages
  std::string version = journal_version();

  // A digest of all but the command; the order of options does not matter.
  std::string digest() const;
  // The differences to `other`: "other weights", "other options (…)".
  std::string difference_to(const JournalSubject& other) const;
};

// A digest of the files' paths, sizes and times; their content is not read.
std::string sources_digest(const std::vector<std::filesystem::path>& files);

struct JournalRecord {
  enum class Kind : uint8_t {
    kTile,
    kImage,
    kSeamTile,
    kPicture,
    kVideo,
    kLeftOut  // an image that cannot be read
  };
  Kind kind = Kind::kImage;
  int64_t unit = 0;    // the index of an image, mosaic or video
  int64_t number = 0;  // index of the tile or picture in the unit
  int64_t height = 0, width = 0;
  int64_t place = 0;  // for kSeamTile: a digest of the mosaic's parts
  std::vector<metrics::Detection> detections;
};

// Whether all boxes are valid: inside `where`, or less than a pixel outside,
// and of an existing class.
bool has_boxes_in(const JournalRecord& record, const tiles::TileRect& where,
                  int64_t classes);

class DetectionJournal {
 public:
  using Check = std::function<bool(const JournalRecord&)>;

  // Starts an empty journal; replaces one that exists.
  static std::unique_ptr<DetectionJournal> begin(
      const std::filesystem::path& folder, const JournalSubject& subject);
  // Opens a journal of unfinished_runs(); nullptr if it no longer exists.
  static std::unique_ptr<DetectionJournal> go_on(
      const std::filesystem::path& file, const std::string& digest);
  ~DetectionJournal();
  DetectionJournal(const DetectionJournal&) = delete;
  DetectionJournal& operator=(const DetectionJournal&) = delete;

  // Returns the next record if it has this kind and unit, otherwise nullopt. A
  // record that `check` rejects is dropped with all records after it.
  std::optional<JournalRecord> next(JournalRecord::Kind kind, int64_t unit,
                                    const Check& check = {});
  // Writes a record after those that next() returned; drops any others.
  void append(const JournalRecord& record);
  // Removes the file, when the results are complete.
  void remove();

 private:
  DetectionJournal(std::filesystem::path file, int descriptor)
      : file_(std::move(file)), descriptor_(descriptor) {}
  // Returns nullptr if the file was renamed or removed before it was locked.
  static std::unique_ptr<DetectionJournal> open(
      const std::filesystem::path& file, int flags);
  void read_next();
  // Moves end_ to the end of the written bytes.
  void write(const std::string& bytes);
  // Flushes the written bytes to the disk.
  void sync();
  [[noreturn]] void fail() const;

  const std::filesystem::path file_;
  const int descriptor_;
  int64_t end_ = 0;          // end of the records read or written
  uint32_t chain_ = 0;       // the CRC of the last record
  int64_t next_end_ = 0;     // the end of the next record
  uint32_t next_chain_ = 0;  // the CRC of the next record
  std::optional<JournalRecord> next_;
  // The time of the newest sync; the clock's epoch before the first one.
  std::chrono::steady_clock::time_point synced_at_;
  bool is_synced_ = true;
};

struct UnfinishedRun {
  enum class State {
    kFree,
    kHeld,    // a process is writing the journal
    kDamaged  // the journal cannot be read, or is of another version
  };
  std::filesystem::path journal;
  State state = State::kFree;
  std::string digest;  // JournalSubject::digest()
  JournalSubject subject;
};

// The unfinished runs in `folder` and, unless `only_there`, in FOLDER2 and so
// on, newest first.
std::vector<UnfinishedRun> unfinished_runs(const std::filesystem::path& folder,
                                           bool only_there);

}  // namespace headroom::detect
