#include "deploy/notify/run_lines.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "parallel/base/text.h"

namespace headroom::notify {
namespace {

using Json = nlohmann::json;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

std::optional<double> number_in(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return number;
}

std::string text_member(const Json& line, const char* key) {
  const auto member = line.find(key);
  return member != line.end() && member->is_string()
             ? member->get<std::string>()
             : "";
}

std::optional<int64_t> whole_member(const Json& line, const char* key) {
  const auto member = line.find(key);
  if (member == line.end() || !member->is_number_integer()) return std::nullopt;
  return member->get<int64_t>();
}

}  // namespace

std::vector<ResultsLine> read_epochs(const std::filesystem::path& results_csv) {
  std::ifstream file(results_csv, std::ios::binary);
  std::vector<ResultsLine> epochs;
  std::string line;
  if (!std::getline(file, line)) return epochs;
  const std::vector<std::string> columns = cells_of(line);
  // Whoever meets the file's end reads a line that is still being written.
  while (std::getline(file, line) && !file.eof()) {
    const std::vector<std::string> cells = cells_of(line);
    const auto epoch = parse_whole(cells.empty() ? "" : cells.front(), 0);
    if (!epoch) break;
    ResultsLine entry{.epoch = *epoch, .text = line, .figures = {}};
    for (size_t i = 1; i < std::min(cells.size(), columns.size()); ++i) {
      if (const auto number = number_in(cells[i])) {
        entry.figures.emplace_back(columns[i], *number);
      }
    }
    epochs.push_back(std::move(entry));
  }
  return epochs;
}

EventReader::EventReader(std::filesystem::path events_jsonl, int64_t first_byte)
    : path_(std::move(events_jsonl)), next_byte_(first_byte) {}

std::vector<EventLine> EventReader::take() {
  std::vector<EventLine> events;
  if (bytes_of(path_) <= next_byte_) return events;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(next_byte_);
  std::string text;
  while (std::getline(file, text) && !file.eof()) {
    next_byte_ += static_cast<int64_t>(text.size()) + 1;
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    events.push_back({.kind = text_member(line, "event"),
                      .step = whole_member(line, "step").value_or(0),
                      .reason = text_member(line, "reason"),
                      .time = text_member(line, "time"),
                      .epoch = whole_member(line, "epoch"),
                      .generation = whole_member(line, "generation"),
                      .change = text_member(line, "change")});
  }
  return events;
}

int64_t bytes_of(const std::filesystem::path& file) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

std::optional<int64_t> milliseconds_of(const std::string& utc) {
  std::tm time{};
  const char* const rest = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr || *rest != '.') return std::nullopt;
  const auto fraction = parse_whole(std::string_view(rest + 1).substr(0, 3), 0);
  if (!fraction) return std::nullopt;
  return static_cast<int64_t>(timegm(&time)) * 1000 + *fraction;
}

}  // namespace headroom::notify
