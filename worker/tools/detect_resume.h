// ResumableDetection: the journal of a detection (detection_journal.h), and the
// choice of the unfinished run that --resume continues.
//
// A run that writes no files has no journal. The journal is created before all
// other files, and removed when the results are complete.
//
// Errors: Error (exit 2) if --resume finds only unfinished runs with other
// weights, options or sources, if another process is running the same command,
// or if results could overwrite sources.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/detect/detection_folder.h"
#include "worker/detect/detection_journal.h"
#include "worker/detect/image_sources.h"
#include "worker/tools/detect_run.h"

namespace headroom::tools {

class ResumableDetection {
 public:
  // Prints on standard error which run is continued, or which one --resume
  // could continue. If a run is continued, `folder` becomes its folder, and
  // files that the run wrote are removed from `sources`.
  ResumableDetection(const DetectRequest& request,
                     detect::ImageSources& sources,
                     detect::DetectionFolder& folder);

  // The next record of the unfinished run if it has this kind and unit;
  // otherwise nullopt.
  std::optional<detect::JournalRecord> next(
      detect::JournalRecord::Kind kind, int64_t unit,
      const detect::DetectionJournal::Check& check = {});
  // Creates the journal. Call it before any other file of the folder is
  // written.
  void begin();
  void append(const detect::JournalRecord& record);
  bool goes_on() const { return goes_on_; }

  // Removes the journal. Call it when the results are complete.
  void finish();
  // The command that continues the run; "" if there is nothing to continue.
  std::string command() const;

 private:
  void go_on_with(const std::vector<detect::UnfinishedRun>& runs,
                  detect::ImageSources& sources);

  const bool has_files_;
  detect::DetectionFolder& folder_;
  detect::JournalSubject subject_;
  // Null if there is no journal.
  std::unique_ptr<detect::DetectionJournal> journal_;
  bool goes_on_ = false;
};

}  // namespace headroom::tools
