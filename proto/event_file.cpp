#include "proto/event_file.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "parallel/base/log.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"

namespace headroom::wire {

std::string to_json_line(const EventRecord& record) {
  nlohmann::ordered_json line;
  line["event"] = to_string(record.event);
  line["step"] = record.step;
  line["rank"] = record.rank;
  line["reason"] = record.reason;
  line["time"] = record.time;
  if (!record.detail_json.empty()) {
    const auto detail =
        nlohmann::ordered_json::parse(record.detail_json, nullptr, false);
    if (detail.is_object()) {
      for (const auto& [key, value] : detail.items()) {
        if (!line.contains(key)) line[key] = value;
      }
    } else {
      line["detail"] = record.detail_json;
    }
  }
  return line.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

void EventFile::add(const std::vector<std::string>& lines) {
  if (run_directory_.empty()) return;
  for (const std::string& line : lines) file_.add(line);
}

void EventFile::add_unwritten(std::vector<std::string> lines) {
  const std::string text = text_or_none(file_.path(), Links::kRefused);
  const size_t end = text.rfind('\n');
  if (!text.empty() && end + 1 != text.size()) {
    file_.cut_to(end == std::string::npos ? 0 : end + 1);
  }
  if (end != std::string::npos && end > 0) {
    const size_t begin = text.rfind('\n', end - 1) + 1;  // npos + 1 is 0
    const auto last = std::find(lines.rbegin(), lines.rend(),
                                text.substr(begin, end - begin));
    if (last != lines.rend()) lines.erase(lines.begin(), last.base());
  }
  add(lines);
}

void EventFile::write_alone() {
  std::error_code ignored;
  if (run_directory_.empty() || is_begun_run_folder(run_directory_)) return;
  std::filesystem::create_directories(run_directory_, ignored);
  file_.write();
}

void EventFile::write() {
  if (!is_begun_run_folder(run_directory_)) return;
  const bool is_written = file_.write();
  if (is_written != is_failing_) return;
  is_failing_ = !is_written;
  const std::string path = file_.path().string();
  if (is_failing_) {
    log::warn(path + " cannot be written (" + file_fault() +
              "): events are in this log, and there once it can");
  } else {
    log::info(path + " is written again, whole");
  }
}

}  // namespace headroom::wire
