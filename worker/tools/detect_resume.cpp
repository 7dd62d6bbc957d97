#include "worker/tools/detect_resume.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

bool writes_files(const DetectRequest& request) {
  const detect::FolderOptions& files = request.folder;
  return files.pictures || files.text || files.csv || files.json ||
         files.crops || request.layers.any();
}

bool begins_with_one_of(const std::string& word,
                        const std::vector<const char*>& flags) {
  return std::ranges::any_of(
      flags, [&](const char* flag) { return word.starts_with(flag); });
}

// The options on which boxes and files depend, except weights and sources.
std::vector<std::string> options_of(std::vector<std::string> words) {
  std::erase_if(words, [](const std::string& word) {
    return begins_with_one_of(
        word,
        {"--weights=", "--source=", "--output=", "--exist-ok", "--resume"});
  });
  return words;
}

// The command as a user would type it.
std::string command_of(const DetectRequest& request) {
  std::string text = "headroom detect";
  for (const std::string& word : request.words) {
    if (begins_with_one_of(word, {"--output=", "--resume"})) continue;
    text += " " + shell_word(word);
  }
  const fs::path output = request.output;
  if (output != fs::absolute("runs/detect/exp").lexically_normal()) {
    text += " --project=" + shell_word(output.parent_path().string()) +
            " --name=" + shell_word(output.filename().string());
  }
  return text + " --resume";
}

std::string digest_of_model(const DetectRequest& request) {
  std::error_code ignored;
  std::string digest = file_digest(request.weights);
  if (!request.cfg.empty() && fs::is_regular_file(request.cfg, ignored)) {
    digest += file_digest(request.cfg);
  }
  return digest;
}

std::string digest_of(const detect::ImageSources& sources) {
  std::vector<fs::path> files = sources.images;
  files.insert(files.end(), sources.videos.begin(), sources.videos.end());
  return detect::sources_digest(files);
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  return std::ranges::mismatch(folder, file).in1 == folder.end();
}

detect::ImageSources without(detect::ImageSources sources,
                             const fs::path& folder) {
  const fs::path place = fs::weakly_canonical(folder);
  for (std::vector<fs::path>* files : {&sources.images, &sources.videos}) {
    std::erase_if(*files, [&](const fs::path& file) {
      return lies_in(fs::weakly_canonical(file), place);
    });
  }
  return sources;
}

// Throws Error if the run could overwrite its own sources.
void refuse_own_sources(const detect::ImageSources& sources,
                        const DetectRequest& request) {
  if (!request.folder.may_exist) return;
  const std::filesystem::path folder =
      std::filesystem::weakly_canonical(request.output);
  for (const auto* files : {&sources.images, &sources.videos}) {
    for (const std::filesystem::path& file : *files) {
      const std::filesystem::path path =
          std::filesystem::weakly_canonical(file);
      if (!lies_in(path, folder)) continue;
      throw Error("detect",
                  file.string() + " lies in " + request.output +
                      ", where results are written to, and might be "
                      "overwritten",
                  "leave out --exist-ok, or give another --name");
    }
  }
}

// A text from a journal, made safe to print: another user may have written it.
std::string shown(const std::string& text) {
  constexpr size_t kLongest = 8192;
  return short_line(text, kLongest);
}

void say(const std::string& line) {
  std::fprintf(stderr, "%s\n", shown(line).c_str());
}

using RunState = detect::UnfinishedRun::State;

// The newest run that no process holds; nullptr if there is none.
const detect::UnfinishedRun* newest_free(
    const std::vector<detect::UnfinishedRun>& runs) {
  const auto run =
      std::ranges::find(runs, RunState::kFree, &detect::UnfinishedRun::state);
  return run == runs.end() ? nullptr : &*run;
}

}  // namespace

ResumableDetection::ResumableDetection(const DetectRequest& request,
                                       detect::ImageSources& sources,
                                       detect::DetectionFolder& folder)
    : has_files_(writes_files(request)), folder_(folder) {
  if (!has_files_) {
    if (request.resume) say("no files are written: there is nothing to resume");
    return;
  }
  subject_ = {.weights = digest_of_model(request),
              .sources = digest_of(sources),
              .options = options_of(request.words),
              .command = command_of(request)};
  const auto runs =
      detect::unfinished_runs(request.output, request.folder.may_exist);
  if (request.resume) {
    go_on_with(runs, sources);
    if (!goes_on_) {
      say(request.output + " has no unfinished run: a new one begins");
    }
  } else if (const detect::UnfinishedRun* newest = newest_free(runs)) {
    say(newest->journal.parent_path().string() +
        " is unfinished; to go on: " + newest->subject.command);
  }
  refuse_own_sources(sources, request);
}

void ResumableDetection::go_on_with(
    const std::vector<detect::UnfinishedRun>& runs,
    detect::ImageSources& sources) {
  for (const detect::UnfinishedRun& run : runs) {
    if (run.state == RunState::kDamaged) {
      say(run.journal.string() +
          " cannot be read, is damaged or of another version, and is left "
          "aside");
      continue;
    }
    const fs::path results = run.journal.parent_path();
    detect::ImageSources others = without(sources, results);
    subject_.sources = digest_of(others);
    if (run.digest != subject_.digest()) continue;
    if (run.state == RunState::kHeld) {
      throw Error("detect",
                  "the same command writes into " + results.string() + " now",
                  "wait until it ends; to begin another run, leave --resume "
                  "out");
    }
    journal_ = detect::DetectionJournal::go_on(run.journal, run.digest);
    if (!journal_) continue;  // that run has ended in the meantime
    sources = std::move(others);
    folder_.go_on_in(results);
    goes_on_ = true;
    return;
  }
  subject_.sources = digest_of(sources);
  const detect::UnfinishedRun* newest = newest_free(runs);
  if (newest == nullptr || newest->digest == subject_.digest()) return;
  const fs::path results = newest->journal.parent_path();
  subject_.sources = digest_of(without(sources, results));
  throw Error("detect",
              results.string() + " is unfinished with " +
                  shown(subject_.difference_to(newest->subject)),
              "to go on there: " + shown(newest->subject.command) +
                  "; to begin a new run, leave --resume out");
}

std::optional<detect::JournalRecord> ResumableDetection::next(
    detect::JournalRecord::Kind kind, int64_t unit,
    const detect::DetectionJournal::Check& check) {
  return journal_ ? journal_->next(kind, unit, check) : std::nullopt;
}

void ResumableDetection::begin() {
  if (!has_files_ || journal_) return;
  const fs::path file = folder_.place_of(detect::kJournalName);
  journal_ = detect::DetectionJournal::begin(file.parent_path(), subject_);
}

void ResumableDetection::append(const detect::JournalRecord& record) {
  begin();
  if (journal_) journal_->append(record);
}

void ResumableDetection::finish() {
  if (!journal_) return;
  journal_->remove();
  folder_.leave_if_empty();
}

std::string ResumableDetection::command() const {
  return journal_ ? subject_.command : "";
}

}  // namespace headroom::tools
