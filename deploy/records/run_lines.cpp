#include "deploy/records/run_lines.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "parallel/base/text.h"

namespace headroom::records {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestJson = 64;

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

std::optional<double> number_in(const std::string& cell) {
  char* end = nullptr;
  const double number = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != '\0') return std::nullopt;
  return number;
}

}  // namespace

Json shallow_json(std::string_view text) {
  bool is_deep = false;
  Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, const Json&) {
        if (depth > kDeepestJson) is_deep = true;
        return !is_deep;
      },
      /*allow_exceptions=*/false);
  return is_deep ? Json(Json::value_t::discarded) : json;
}

std::string text_member(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string()
             ? member->get<std::string>()
             : "";
}

std::deque<Json> last_objects(const std::filesystem::path& file, size_t most) {
  constexpr std::streamoff kTail = 4 << 20;
  std::deque<Json> objects;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return objects;
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kTail));
  for (std::string line; std::getline(in, line) && !in.eof();) {
    Json object = shallow_json(line);
    if (!object.is_object()) continue;
    objects.push_back(std::move(object));
    if (objects.size() > most) objects.pop_front();
  }
  return objects;
}

ResultsTable results_table(std::string_view csv, size_t most_lines) {
  ResultsTable table;
  for (size_t end = csv.find('\n');
       end != std::string_view::npos && table.lines.size() < most_lines;
       end = csv.find('\n')) {
    const std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end + 1);
    const std::vector<std::string> cells = cells_of(line);
    if (table.columns.empty()) {
      table.columns = cells;
      continue;
    }
    const size_t digits = cells.front().find_first_not_of(' ');
    const auto epoch = parse_whole(
        digits == std::string::npos ? "" : cells.front().substr(digits), 0);
    if (!epoch || cells.size() != table.columns.size()) continue;
    ResultsTable::Line& added = table.lines.emplace_back();
    added.epoch = *epoch;
    std::ranges::transform(cells, std::back_inserter(added.cells), number_in);
  }
  return table;
}

}  // namespace headroom::records
