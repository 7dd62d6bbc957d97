// DetectionJournal: what an unfinished run has found, so that --resume goes on
// where it ended. It lies beside the results until they are complete:
//
//   detect.journal
//     "HEADRDET" | version u32 | length u32 | CRC-32C u32 | what it is about |
//     then per record: length u32 | CRC-32C u32 | payload
//
// A folder has one, so that the last run there is the one that goes on. These
// numbers are little-endian; payloads are as they lie in memory, for the same
// version of headroom. A record's CRC goes on from the one before it, so that
// nothing counts behind a record that is torn, removed or exchanged: a kill
// loses the record that was being written, a power failure those of the last
// seconds, and their pictures are looked at again.
//
// A run does its work in one order, and records are read in this order: the
// journal itself holds one of them at a time.
//
// Errors: Error (exit 5) where the file cannot be written; (exit 2): another
// process writes it.
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

// Which headroom writes journals.
std::string journal_version();

// What results depend on, and the command, with --resume, that asks for them.
struct JournalSubject {
  std::string weights;               // a digest
  std::string sources;               // a digest of paths, sizes and times
  std::vector<std::string> options;  // "--tile=64", in any order
  std::string command;               // people read it
  std::string version = journal_version();

  // All but the command; the same for options in another order.
  std::string digest() const;
  // What of `other` is different: "other weights", "other options (…)".
  std::string difference_to(const JournalSubject& other) const;
};

// The digest of files as far as they are known without being read.
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
  int64_t unit = 0;    // the number of an image, mosaic or video
  int64_t number = 0;  // the number of its tile or picture
  int64_t height = 0, width = 0;
  int64_t place = 0;  // a digest of where a seam's tile lies
  std::vector<metrics::Detection> detections;
};

// Are all boxes there, or less than a pixel beside it, and of those classes?
bool has_boxes_in(const JournalRecord& record, const tiles::TileRect& where,
                  int64_t classes);

class DetectionJournal {
 public:
  using Check = std::function<bool(const JournalRecord&)>;

  // A journal of nothing, in place of one that is there.
  static std::unique_ptr<DetectionJournal> begin(
      const std::filesystem::path& folder, const JournalSubject& subject);
  // Goes on with what unfinished_runs() found; null where it is there no more.
  static std::unique_ptr<DetectionJournal> go_on(
      const std::filesystem::path& file, const std::string& digest);
  ~DetectionJournal();
  DetectionJournal(const DetectionJournal&) = delete;
  DetectionJournal& operator=(const DetectionJournal&) = delete;

  // The next record, if it is of that kind and unit. One that `check` refuses
  // is forgotten with all behind it.
  std::optional<JournalRecord> next(JournalRecord::Kind kind, int64_t unit,
                                    const Check& check = {});
  // Writes a record behind those that next() gave; others are forgotten.
  void append(const JournalRecord& record);
  // Removes the file: the results are complete.
  void remove();

 private:
  DetectionJournal(std::filesystem::path file, int descriptor)
      : file_(std::move(file)), descriptor_(descriptor) {}
  // Null where the file lost its name before it could be locked.
  static std::unique_ptr<DetectionJournal> open(
      const std::filesystem::path& file, int flags);
  void read_next();
  // Moves end_ behind what is written there.
  void write(const std::string& bytes);
  // Brings to disk what was written.
  void sync();
  [[noreturn]] void fail() const;

  const std::filesystem::path file_;
  const int descriptor_;
  int64_t end_ = 0;          // bytes of what was given or written
  uint32_t chain_ = 0;       // the last one's CRC
  int64_t next_end_ = 0;     // bytes with the next record
  uint32_t next_chain_ = 0;  // its CRC
  std::optional<JournalRecord> next_;
  std::chrono::steady_clock::time_point synced_at_;  // long ago at first
  bool is_synced_ = true;
};

struct UnfinishedRun {
  enum class State {
    kFree,
    kHeld,    // a process writes it
    kDamaged  // nothing is known of it: another version may have written it
  };
  std::filesystem::path journal;
  State state = State::kFree;
  std::string digest;  // the subject's
  JournalSubject subject;
};

// Those in `folder`, and, unless `only_there`, in FOLDER2, FOLDER3, …; the
// newest first.
std::vector<UnfinishedRun> unfinished_runs(const std::filesystem::path& folder,
                                           bool only_there);

}  // namespace headroom::detect
