// ResumableDetection: the journal of a run of detect (detection_journal.h), and
// which unfinished run --resume goes on with.
//
// A run that writes no files has none. The file is made before all others, and
// goes when the results are complete.
//
// Errors: Error (exit 2) where --resume finds unfinished runs of other weights,
// options or sources only, or a process that does the same now; where results
// might be written over sources.
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
  // Says on standard error what goes on, or could. `folder` becomes that of the
  // run that goes on, and `sources` lose what it wrote.
  ResumableDetection(const DetectRequest& request,
                     detect::ImageSources& sources,
                     detect::DetectionFolder& folder);

  // What the unfinished run found next, if it is of that kind and unit.
  std::optional<detect::JournalRecord> next(
      detect::JournalRecord::Kind kind, int64_t unit,
      const detect::DetectionJournal::Check& check = {});
  // Is called before something is written into the folder.
  void begin();
  void append(const detect::JournalRecord& record);
  bool goes_on() const { return goes_on_; }

  // The results are complete.
  void finish();
  // The command that goes on; "": there is nothing to go on with.
  std::string command() const;

 private:
  void go_on_with(const std::vector<detect::UnfinishedRun>& runs,
                  detect::ImageSources& sources);

  const bool has_files_;
  detect::DetectionFolder& folder_;
  detect::JournalSubject subject_;
  std::unique_ptr<detect::DetectionJournal> journal_;  // null: none yet
  bool goes_on_ = false;
};

}  // namespace headroom::tools
