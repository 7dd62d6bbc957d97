#include "deploy/page/report.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "deploy/page/page_text.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;

// The first bytes of a report, by which it is recognised.
constexpr std::string_view kDoctype = "<!doctype html>";
constexpr std::string_view kWritten =
    "<!doctype html>\n<!-- a report of headroom -->";
constexpr int kMostTimelines = 16;
// The bytes for a picture's address, name and the rest of its entry.
constexpr size_t kPictureEntry = 400;

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

size_t base64_size(int64_t bytes) {
  return static_cast<size_t>((bytes + 2) / 3 * 4);
}

std::string data_address(const fs::path& folder, const Picture& picture) {
  std::ifstream in(folder / picture.name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  // The file may have grown since it was listed.
  if (bytes.empty() || static_cast<int64_t>(bytes.size()) != picture.bytes) {
    return "";
  }
  return std::string("data:image/") +
         (picture.name.ends_with(".png") ? "png" : "jpeg") + ";base64," +
         base64(bytes);
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

using Names = std::set<std::string>;

class Report {
 public:
  explicit Report(const ReportRequest& request) {
    for (const RunPlace& place : request.runs) {
      records_.push_back(
          std::make_unique<RunRecord>(place.id, place.directory));
      const bool is_first = records_.size() == 1;
      records_.back()->refresh(
          is_first && request.status ? &*request.status : nullptr,
          request.is_held && request.is_held(place.directory));
    }
    shown_.resize(records_.size());
  }

  explicit Report(const PlannedRun& planned) : shown_(1) {
    records_.push_back(std::make_unique<RunRecord>(planned));
  }

  std::string text() {
    for (size_t points = 1200; points >= 75; points /= 2) {
      points_ = points;
      const std::string bare = whole();
      if (bare.size() > kMostReportBytes) continue;
      choose_pictures(kMostReportBytes - bare.size());
      return whole();
    }
    throw Error("report",
                counted(std::ssize(records_), "run") + " make a report above " +
                    format_bytes(static_cast<int64_t>(kMostReportBytes)),
                "name fewer of them");
  }

 private:
  // Takes the newest picture of every run, then the second newest, and so on.
  void choose_pictures(size_t room) {
    size_t turn = 0;
    for (bool has_more = true; has_more; ++turn) {
      has_more = false;
      for (size_t i = 0; i < records_.size(); ++i) {
        const std::vector<Picture>& pictures = records_[i]->pictures();
        if (turn >= pictures.size()) continue;
        has_more = true;
        const size_t size = base64_size(pictures[turn].bytes) + kPictureEntry +
                            6 * pictures[turn].name.size();
        if (size > room) continue;
        room -= size;
        shown_[i].insert(pictures[turn].name);
      }
    }
  }

  std::string run_text(size_t index) const {
    const RunRecord& record = *records_[index];
    const size_t all = record.pictures().size();
    const size_t left_out = all - shown_[index].size();
    const std::string note =
        left_out == 0 ? ""
                      : cat(left_out, " of ",
                            counted(static_cast<int64_t>(all), "picture"),
                            " are left out, for a report has at most 2 MB; "
                            "they lie in the run's folder.");
    return record.run(
        [&](const Picture& picture) -> std::optional<std::string> {
          if (!shown_[index].contains(picture.name)) return std::nullopt;
          std::string address = data_address(record.directory(), picture);
          if (address.empty()) return std::nullopt;
          return address;
        },
        note);
  }

  std::string whole() const {
    std::string data = "{\"runs\":[";
    for (size_t i = 0; i < records_.size(); ++i) {
      const RunRecord& record = *records_[i];
      data += (i == 0 ? "{\"run\":" : ",{\"run\":") + run_text(i) +
              ",\"steps\":" + record.steps(points_, 0) + ",\"timelines\":[";
      const int ranks = std::min(
          record.world_size(),
          std::max(1, kMostTimelines / static_cast<int>(records_.size())));
      for (int rank = 0; rank < ranks; ++rank) {
        data += (rank == 0 ? "" : ",") + record.timeline(rank).value_or("null");
      }
      data += "]}";
    }
    data += "]}";
    std::string page(page_text());
    const size_t mark = page.find(kReportMark);
    page.replace(mark, kReportMark.size(),
                 "<script type=\"application/json\" id=\"report-data\">" +
                     inside_script(data) + "</script>");
    page.replace(0, kDoctype.size(), kWritten);
    return page;
  }

  std::vector<std::unique_ptr<RunRecord>> records_;
  std::vector<Names> shown_;  // chosen pictures, by run
  size_t points_ = 0;
};

}  // namespace

std::string report_text(const ReportRequest& request) {
  return Report(request).text();
}

std::string planned_report_text(const PlannedRun& planned) {
  return Report(planned).text();
}

bool is_report(const fs::path& file) {
  std::string start(kWritten.size(), '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  return in && start == kWritten;
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
