#include "deploy/page/report.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "deploy/page/page_text.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;

// The first bytes of the page, and of a report. A report is recognised by these
// bytes.
constexpr std::string_view kDoctype = "<!doctype html>";
constexpr std::string_view kWritten =
    "<!doctype html>\n<!-- a report of headroom -->";
constexpr int kMostTimelines = 16;

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 |
              (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::string data_address(const fs::path& folder, const Picture& picture) {
  const std::optional<std::string> bytes =
      text_of_file(folder / picture.name, static_cast<uint64_t>(picture.bytes),
                   Links::kRefused);
  // The file may have become shorter or longer since it was listed.
  if (!bytes || bytes->empty() || std::ssize(*bytes) != picture.bytes) {
    return "";
  }
  return std::string("data:image/") +
         (picture.name.ends_with(".png") ? "png" : "jpeg") + ";base64," +
         base64(*bytes);
}

// JSON for a script element: '<' is escaped, so that nothing ends the element.
std::string inside_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

class Report {
 public:
  explicit Report(const ReportRequest& request) {
    for (const records::RunPlace& place : request.runs) {
      records_.push_back(std::make_unique<RunRecord>(place));
      const bool is_first = records_.size() == 1;
      records_.back()->refresh(
          is_first ? request.status : std::nullopt,
          request.is_held && request.is_held(place.directory));
    }
  }

  explicit Report(const PlannedRun& planned) {
    records_.push_back(std::make_unique<RunRecord>(planned));
  }

  std::string text() const {
    // The last try leaves out all events: their texts may have any size.
    size_t points = 1200, most_events = kMostEvents;
    for (; points >= 37; points /= 2, most_events /= 2) {
      if (points < 75) most_events = 0;
      const std::string runs = runs_text(points, most_events);
      const std::string bare = page_with(runs, "");
      if (bare.size() > kMostReportBytes) continue;
      return page_with(runs, pictures_text(kMostReportBytes - bare.size()));
    }
    throw Error("report",
                counted(std::ssize(records_), "run") + " make a report above " +
                    format_bytes(static_cast<int64_t>(kMostReportBytes)),
                "name fewer of them");
  }

 private:
  std::string runs_text(size_t points, size_t most_events) const {
    std::string text;
    const int most_ranks =
        std::max(1, kMostTimelines / static_cast<int>(records_.size()));
    for (const auto& record : records_) {
      std::string timelines;
      const int ranks = std::min(record->world_size(), most_ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        timelines +=
            (rank == 0 ? "" : ",") + record->timeline(rank).value_or("null");
      }
      text += cat(
          text.empty() ? "" : ",", "{\"run\":", record->document(most_events),
          ",\"plan\":", record->plan(), ",\"steps\":", record->steps(points, 0),
          ",\"timelines\":[", timelines, "]}");
    }
    return inside_script(text);
  }

  // The pictures that fit into `room`: the newest of every run, then the
  // second newest, and so on.
  std::string pictures_text(size_t room) const {
    std::string text;
    bool has_more = true;
    for (size_t turn = 0; std::exchange(has_more, false); ++turn) {
      for (size_t run = 0; run < records_.size(); ++run) {
        const std::vector<Picture> pictures = records_[run]->pictures();
        if (turn >= pictures.size()) continue;
        has_more = true;
        if (static_cast<size_t>(pictures[turn].bytes) > room) continue;
        const std::string entry = inside_script(
            cat(text.empty() ? "" : ",", "{\"run\":", run,
                ",\"name\":", json_text(pictures[turn].name), ",\"url\":\"",
                data_address(records_[run]->place().directory, pictures[turn]),
                "\"}"));
        if (entry.size() <= room - text.size()) text += entry;
      }
    }
    return text;
  }

  static std::string page_with(const std::string& runs,
                               const std::string& pictures) {
    std::string page(page_text());
    page.replace(page.find(kReportMark), kReportMark.size(),
                 cat("<script type=\"application/json\" id=\"report-data\">"
                     "{\"runs\":[",
                     runs, "],\"pictures\":[", pictures, "]}</script>"));
    page.replace(0, kDoctype.size(), kWritten);
    return page;
  }

  std::vector<std::unique_ptr<RunRecord>> records_;
};

}  // namespace

std::string report_text(const ReportRequest& request) {
  return Report(request).text();
}

std::string planned_report_text(const PlannedRun& planned) {
  return Report(planned).text();
}

bool is_report(const fs::path& file) {
  const RegularFile opened(file, Links::kFollowed);
  return opened.is_open() && opened.read(0, kWritten.size()) == kWritten;
}

void require_replaceable(const fs::path& file, const std::string& remedy) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(file, error)) || is_report(file)) return;
  throw Error("report", file.string() + " is there, and is no report", remedy);
}

void write_report(const fs::path& file, const std::string& text) {
  write_whole_file(file, text);
}

}  // namespace headroom::page
