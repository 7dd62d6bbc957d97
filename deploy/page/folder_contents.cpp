#include "deploy/page/folder_contents.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/records/run_lines.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestEvent = 64 << 10;
// The newest events are kept unchanged up to this number of bytes in all. Of
// older events, lines above kLongestOldEvent are shortened.
constexpr size_t kMostWholeBytes = 512 << 10;
constexpr size_t kLongestOldEvent = 4 << 10;
constexpr size_t kMostEventBytes = 16 << 20;
constexpr size_t kMostPictures = 200;

// The line of an event without its lists and objects; "" if the line is no JSON
// object or is still longer than `longest`.
std::string brief_event(const std::string& line, size_t longest) {
  const Json event = records::shallow_json(line);
  if (!event.is_object()) return "";
  Json brief;
  for (const auto& [name, value] : event.items()) {
    if (!value.is_structured()) brief[name] = value;
  }
  const std::string text =
      brief.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > longest ? "" : text;
}

}  // namespace

std::string events_text(const fs::path& run_directory, size_t most) {
  const std::string text =
      records::last_lines(run_directory / run_files::kEvents, kMostEventBytes);
  const std::vector<std::string_view> lines = records::lines_of(text);
  const std::string generation =
      "\"event\":\"" + to_string(EventKind::kGeneration) + "\"";
  const auto newest_generation =
      std::ranges::find_if(lines.rbegin(), lines.rend(), [&](auto line) {
        return line.find(generation) != std::string_view::npos;
      });
  std::vector<std::string> kept;  // the newest first
  size_t bytes = 0;
  for (size_t age = 0; age < lines.size(); ++age) {
    const auto line = lines.rbegin() + static_cast<ptrdiff_t>(age);
    const bool is_generation = line == newest_generation;
    if (age >= most && !is_generation && age + 1 < lines.size()) continue;
    const size_t longest = bytes + line->size() <= kMostWholeBytes
                               ? kLongestEvent
                               : kLongestOldEvent;
    kept.push_back(is_generation || line->size() <= longest
                       ? std::string(*line)
                       : brief_event(std::string(*line), longest));
    bytes += kept.back().size();
  }
  std::string all;
  for (auto line = kept.rbegin(); line != kept.rend(); ++line) {
    all += *line + '\n';
  }
  return all;
}

std::vector<Picture> pictures_in(const fs::path& run_directory) {
  std::vector<Picture> pictures;
  std::error_code error;
  for (const fs::path& file : entries_of(run_directory, error)) {
    const std::string name = file.filename().string();
    if (!name.ends_with(".png") && !name.ends_with(".jpg")) continue;
    struct stat status {};
    // A symbolic link could point to any file.
    if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    pictures.push_back({name, static_cast<int64_t>(status.st_size),
                        static_cast<int64_t>(status.st_mtime)});
  }
  std::ranges::sort(pictures, [](const Picture& a, const Picture& b) {
    return std::pair(-a.time, a.name) < std::pair(-b.time, b.name);
  });
  if (pictures.size() > kMostPictures) pictures.resize(kMostPictures);
  return pictures;
}

std::string stamp_of(const fs::path& run_directory) {
  std::string stamp;
  // The folder's modification time changes with its list of files.
  for (const char* name :
       {".", run_files::kRun, run_files::kPlan, run_files::kEvents,
        run_files::kResults, run_files::kSummary, run_files::kCheckpoints}) {
    struct stat status {};
    if (::stat((run_directory / name).c_str(), &status) == 0) {
      stamp += cat(status.st_mtim.tv_sec % 1'000'000, ".",
                   status.st_mtim.tv_nsec / 1'000'000, "+", status.st_size);
    }
    stamp += ' ';
  }
  return stamp;
}

int64_t steps_bytes(const fs::path& run_directory) {
  std::error_code error;
  const auto size = fs::file_size(run_directory / run_files::kSteps, error);
  return error ? 0 : static_cast<int64_t>(size);
}

}  // namespace headroom::page
