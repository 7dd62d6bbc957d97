#include "deploy/page/run_shelf.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::page {
namespace {

constexpr auto kBetweenLooks = std::chrono::seconds(5);
constexpr size_t kMostAnswers = 16;
// The most runs whose files are kept in memory, and the most bytes of their
// answers, not counting the newest answer. Larger values avoid reading files
// again when readers look at many runs in turn.
constexpr size_t kMostReadRuns = 32;
constexpr size_t kMostAnswerBytes = 64 << 20;

std::string truth_text(bool value) { return value ? "true" : "false"; }

}  // namespace

RunShelf::RunShelf(RunSource source, bool may_stop)
    : source_(std::move(source)), may_stop_(may_stop) {
  for (records::RunPlace& place : source_.places()) {
    entries_.push_back(std::make_unique<Entry>(std::move(place)));
  }
  looked_ = Clock::now();
}

void RunShelf::look_for_runs() {
  if (Clock::now() - looked_ < kBetweenLooks) return;
  looked_ = Clock::now();
  std::vector<records::RunPlace> places;
  try {
    places = source_.places();
  } catch (const Error&) {
    return;  // the folders may be readable again later
  }
  std::vector<std::unique_ptr<Entry>> entries;
  for (records::RunPlace& place : places) {
    const auto known = std::ranges::find_if(entries_, [&](const auto& entry) {
      return entry != nullptr && entry->record.place() == place;
    });
    entries.push_back(known != entries_.end()
                          ? std::move(*known)
                          : std::make_unique<Entry>(std::move(place)));
  }
  entries_ = std::move(entries);
}

RunShelf::Entry* RunShelf::find(const std::string& id) {
  look_for_runs();
  const auto entry = std::ranges::find_if(
      entries_, [&](const auto& one) { return one->record.place().id == id; });
  return entry == entries_.end() ? nullptr : entry->get();
}

std::optional<LiveStatus> RunShelf::live_of(const Entry& entry) const {
  const bool is_live =
      source_.live && entry.record.place().id == source_.live_id;
  return is_live ? source_.live() : std::nullopt;
}

bool RunShelf::is_held(const Entry& entry, bool has_live) const {
  return !has_live && source_.is_held &&
         source_.is_held(entry.record.place().directory);
}

Text RunShelf::answer(
    const std::string& id, const std::string& question,
    const std::function<std::optional<std::string>(RunRecord&)>& make) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(id);
  if (entry == nullptr) return nullptr;
  if (Clock::now() - entry->read >= source_.refresh_interval) {
    const std::optional<LiveStatus> live = live_of(*entry);
    entry->record.refresh(live, is_held(*entry, live.has_value()));
    entry->answers.clear();
    entry->read = Clock::now();
  }
  if (const auto known = entry->answers.find(question);
      known != entry->answers.end()) {
    return known->second;
  }
  make_room(*entry);
  std::optional<std::string> text = make(entry->record);
  if (!text) return nullptr;
  if (entry->answers.size() >= kMostAnswers) entry->answers.clear();
  return entry->answers[question] =
             std::make_shared<const std::string>(std::move(*text));
}

void RunShelf::make_room(Entry& kept) {
  for (;;) {
    size_t runs = 0, bytes = 0;
    std::unique_ptr<Entry>* oldest = nullptr;
    for (auto& entry : entries_) {
      if (entry->read == Clock::time_point()) continue;
      ++runs;
      for (const auto& [question, text] : entry->answers) bytes += text->size();
      if (entry.get() != &kept &&
          (oldest == nullptr || entry->read < (*oldest)->read)) {
        oldest = &entry;
      }
    }
    if (runs <= kMostReadRuns && bytes <= kMostAnswerBytes) return;
    if (oldest == nullptr) {
      kept.answers.clear();
      return;
    }
    *oldest = std::make_unique<Entry>((*oldest)->record.place());
  }
}

std::string RunShelf::news() {
  const std::lock_guard lock(mutex_);
  look_for_runs();
  std::optional<LiveStatus> live;
  std::string runs;
  for (const auto& entry : entries_) {
    const records::RunPlace& place = entry->record.place();
    const std::optional<LiveStatus> own = live_of(*entry);
    if (own) live = own;
    runs += cat(runs.empty() ? "" : ",", "{\"id\":", json_text(place.id),
                ",\"held\":", truth_text(is_held(*entry, own.has_value())),
                ",\"stamp\":\"", stamp_of(place.directory),
                "\",\"steps\":", steps_bytes(place.directory), "}");
  }
  return cat("{\"live\":",
             source_.live_id.empty() ? "null" : json_text(source_.live_id),
             ",\"may_stop\":", truth_text(may_stop_),
             ",\"status\":", live_text(live), ",\"runs\":[", runs, "]}");
}

std::optional<std::filesystem::path> RunShelf::picture(
    const std::string& id, const std::string& name) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(id);
  if (entry == nullptr) return std::nullopt;
  const std::vector<Picture> pictures = entry->record.pictures();
  const auto picture = std::ranges::find(pictures, name, &Picture::name);
  if (picture == pictures.end()) return std::nullopt;
  return entry->record.place().directory / picture->name;
}

}  // namespace headroom::page
