#include "deploy/page/run_shelf.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::page {
namespace {

constexpr auto kBetweenLooks = std::chrono::seconds(5);
constexpr size_t kMostAnswers = 16;

}  // namespace

RunShelf::RunShelf(RunSource source, bool may_stop)
    : source_(std::move(source)), may_stop_(may_stop) {
  for (RunPlace& place : source_.places()) {
    auto entry = std::make_unique<Entry>();
    entry->place = std::move(place);
    entries_.push_back(std::move(entry));
  }
  looked_ = Clock::now();
}

void RunShelf::look_for_runs() {
  if (Clock::now() - looked_ < kBetweenLooks) return;
  looked_ = Clock::now();
  std::vector<RunPlace> places;
  try {
    places = source_.places();
  } catch (const Error&) {
    return;  // the folders may be readable again later
  }
  std::vector<std::unique_ptr<Entry>> entries;
  for (RunPlace& place : places) {
    const auto known = std::ranges::find_if(entries_, [&](const auto& entry) {
      return entry != nullptr && entry->place == place;
    });
    if (known != entries_.end()) {
      entries.push_back(std::move(*known));
      continue;
    }
    entries.push_back(std::make_unique<Entry>());
    entries.back()->place = std::move(place);
  }
  entries_ = std::move(entries);
}

RunShelf::Entry* RunShelf::find(const std::string& id) {
  look_for_runs();
  const auto entry = std::ranges::find_if(
      entries_, [&](const auto& one) { return one->place.id == id; });
  return entry == entries_.end() ? nullptr : entry->get();
}

void RunShelf::refresh(Entry& entry) {
  const Clock::time_point now = Clock::now();
  if (entry.read && now - *entry.read < source_.refresh_interval) return;
  if (entry.record == nullptr) {
    entry.record =
        std::make_unique<RunRecord>(entry.place.id, entry.place.directory);
  }
  std::optional<coordinator::RunStatus> live;
  if (source_.live && entry.place.id == source_.live_id) live = source_.live();
  entry.record->refresh(
      live ? &*live : nullptr,
      !live && source_.is_held && source_.is_held(entry.place.directory));
  entry.answers.clear();
  entry.read = Clock::now();
}

Text RunShelf::answer(
    const std::string& id, const std::string& name,
    const std::function<std::optional<std::string>(RunRecord&)>& make) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(id);
  if (entry == nullptr) return nullptr;
  refresh(*entry);
  if (const auto known = entry->answers.find(name);
      known != entry->answers.end()) {
    return known->second;
  }
  std::optional<std::string> text = make(*entry->record);
  if (!text) return nullptr;
  if (entry->answers.size() >= kMostAnswers) entry->answers.clear();
  return entry->answers[name] =
             std::make_shared<const std::string>(std::move(*text));
}

Text RunShelf::runs() {
  const std::lock_guard lock(mutex_);
  look_for_runs();
  std::string text = "{\"runs\":[";
  for (size_t i = 0; i < entries_.size(); ++i) {
    refresh(*entries_[i]);
    text += (i == 0 ? "" : ",") + entries_[i]->record->overview();
  }
  text += "],\"live\":" +
          (source_.live_id.empty() ? "null" : json_text(source_.live_id)) +
          ",\"may_stop\":" + (may_stop_ ? "true" : "false") + "}";
  return std::make_shared<const std::string>(std::move(text));
}

Text RunShelf::run(const std::string& id) {
  return answer(id, "run", [&](RunRecord& record) {
    return record.run([&](const Picture& picture) {
      return "/files?id=" + url_encoded(id) +
             "&name=" + url_encoded(picture.name);
    });
  });
}

Text RunShelf::steps(const std::string& id, size_t points, int64_t from) {
  return answer(id, cat("steps ", points, " ", from),
                [&](RunRecord& record) { return record.steps(points, from); });
}

Text RunShelf::timeline(const std::string& id, int rank) {
  return answer(id, cat("timeline ", rank),
                [&](RunRecord& record) { return record.timeline(rank); });
}

Text RunShelf::changes(const std::string& id) {
  return answer(id, "changes",
                [](RunRecord& record) { return record.changes(); });
}

void RunShelf::expire() {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) entry->read.reset();
}

std::optional<std::filesystem::path> RunShelf::picture(
    const std::string& id, const std::string& name) {
  const std::lock_guard lock(mutex_);
  Entry* const entry = find(id);
  if (entry == nullptr) return std::nullopt;
  refresh(*entry);
  const std::vector<Picture>& pictures = entry->record->pictures();
  const auto picture = std::ranges::find(pictures, name, &Picture::name);
  if (picture == pictures.end()) return std::nullopt;
  return entry->place.directory / picture->name;
}

}  // namespace headroom::page
