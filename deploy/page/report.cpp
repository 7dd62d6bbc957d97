#include "deploy/page/report.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "deploy/page/page_text.h"
#include "deploy/page/smaller_picture.h"
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

// The bytes of base64 text for this many bytes.
size_t encoded_size(size_t bytes) { return (bytes + 2) / 3 * 4; }

std::string data_address(const std::string& bytes, const char* kind) {
  return cat("data:image/", kind, ";base64,", base64(bytes));
}

// The picture unchanged; "" if the file has become shorter or longer since it
// was listed.
std::string whole_address(const fs::path& folder, const Picture& picture) {
  const std::optional<std::string> bytes =
      text_of_file(folder / picture.name, static_cast<uint64_t>(picture.bytes),
                   Links::kRefused);
  if (!bytes || bytes->empty() || std::ssize(*bytes) != picture.bytes) {
    return "";
  }
  return data_address(*bytes, picture.name.ends_with(".png") ? "png" : "jpeg");
}

// The bytes of an entry beside the picture: its name and the JSON around it.
constexpr size_t kEntryBytes = 400;
// The room that a picture of many objects needs with a side of 320 pixels.
constexpr size_t kLeastShare = 48'000;

// The most bytes that each of these sizes may have so that all fit into `room`:
// what the small ones leave is divided among the others. The largest size_t if
// all fit as they are.
size_t fair_share(std::vector<size_t> sizes, size_t room) {
  std::ranges::sort(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t share = room / (sizes.size() - i);
    if (sizes[i] > share) return share;
    room -= sizes[i];
  }
  return std::numeric_limits<size_t>::max();
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

  struct ReportPicture {
    size_t run = 0;
    Picture picture;
    size_t size() const {
      return encoded_size(static_cast<size_t>(picture.bytes)) + kEntryBytes;
    }
  };

  // The newest picture of every run, then the second newest, and so on.
  std::vector<ReportPicture> pictures() const {
    std::vector<std::vector<Picture>> all;
    size_t most = 0;
    for (const auto& record : records_) {
      all.push_back(record->pictures());
      most = std::max(most, all.back().size());
    }
    std::vector<ReportPicture> pictures;
    for (size_t turn = 0; turn < most; ++turn) {
      for (size_t run = 0; run < all.size(); ++run) {
        if (turn < all[run].size()) pictures.push_back({run, all[run][turn]});
      }
    }
    return pictures;
  }

  // If the pictures do not fit into `room`, those above a fair share are made
  // smaller. Only those that would become too small to show anything are left
  // out, the oldest first.
  std::string pictures_text(size_t room) const {
    std::vector<ReportPicture> wanted = pictures();
    if (wanted.size() > room / kLeastShare) {
      wanted.resize(room / kLeastShare);
    }
    std::vector<size_t> sizes;
    for (const ReportPicture& one : wanted) sizes.push_back(one.size());
    const size_t share = fair_share(std::move(sizes), room);
    std::string text;
    for (const ReportPicture& one : wanted) {
      const fs::path& folder = records_[one.run]->place().directory;
      const bool is_smaller = one.size() > share;
      std::string address;
      if (!is_smaller) {
        address = whole_address(folder, one.picture);
      } else if (std::string jpeg = smaller_picture(
                     folder / one.picture.name, (share - kEntryBytes) / 4 * 3);
                 !jpeg.empty()) {
        address = data_address(jpeg, "jpeg");
      }
      if (address.empty()) continue;
      const std::string entry =
          inside_script(cat(text.empty() ? "" : ",", "{\"run\":", one.run,
                            ",\"name\":", json_text(one.picture.name),
                            is_smaller ? ",\"smaller\":true" : "",
                            ",\"url\":\"", address, "\"}"));
      if (entry.size() <= room - text.size()) text += entry;
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
