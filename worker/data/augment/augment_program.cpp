#include "worker/data/augment/augment_program.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::augment {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestHeader = 4096;        // bytes
constexpr size_t kBoxNumbers = 5;              // class, x1, y1, x2, y2
constexpr int64_t kMostErrorLines = 200;       // in the log, for each thread
constexpr std::chrono::seconds kTimeToEnd{5};  // after it has closed its output

}  // namespace

void AugmentProgram::start() {
  std::istringstream command(options_.command);
  std::vector<std::string> words(1);  // an empty name cannot be started
  command >> words.front();
  for (std::string word; command >> word;) words.push_back(word);
  program_.reset();
  last_error_line_.clear();
  program_ = std::make_unique<PipedProgram>(
      words, kTimeToEnd, [this](const std::string& line) {
        if (!line.empty()) last_error_line_ = line;
        if (++error_lines_ > kMostErrorLines) return;
        log::info("augment program: " + printable(line));
      });
}

void AugmentProgram::fail(const std::string& what,
                          const std::string& remedy) const {
  throw Error("augment",
              cat("--augment-program ", shell_word(options_.command), " ", what,
                  " (", sample_, ")"),
              remedy, ExitCode::kData);
}

void AugmentProgram::read(void* bytes, size_t size) {
  const auto may_wait = [this] {
    return Clock::now() < deadline_ && !is_stopped_();
  };
  auto* to = static_cast<uint8_t*>(bytes);
  while (size > 0) {
    const size_t got = program_->exchange(to, size, unwritten_, may_wait);
    to += got;
    size -= got;
    if (got > 0) continue;
    if (!may_wait()) {
      fail(cat("did not return the sample within ", options_.patience.count(),
               " s"),
           "it must write each sample, and flush its output, before it reads "
           "the next; if it does, make it faster");
    }
    const std::string why = program_->finish();
    const std::string& line = last_error_line_;
    fail(cat("ended: ", why.empty() ? "it closed its output" : why,
             line.empty() ? "" : ": " + short_line(line, 200)),
         "its standard error is in the run's logs folder; correct it");
  }
}

size_t AugmentProgram::read_header(const std::string& sent_header) {
  std::string line;
  for (char c = 0; line.size() < kLongestHeader; line += c) {
    read(&c, 1);
    if (c == '\n') break;
  }
  const Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    fail("wrote '" + short_line(line, 60) + "' instead of a sample's header",
         "standard output is for samples: print to standard error, in Python "
         "with file=sys.stderr");
  }
  const Json sent = Json::parse(sent_header);
  for (const auto& [key, value] : sent.items()) {
    const Json given = answer.value(key, Json());
    if (key == "boxes" ? given.is_number_unsigned() : given == value) continue;
    fail(cat("answered \"", key, "\": ", short_line(given.dump(), 60), " to ",
             value.dump()),
         "return the header that came, with the new number of boxes");
  }
  const auto count = answer["boxes"].get<uint64_t>();
  const auto most =
      std::max<uint64_t>(options_.most_boxes, sent["boxes"].get<uint64_t>());
  if (count > most) {
    fail(cat("returned ", count, " boxes, and memory is planned for at most ",
             most, " in a sample, from the labels of the data set"),
         "return fewer");
  }
  return count;
}

std::vector<labels::NormalizedBox> AugmentProgram::boxes_of(
    const std::vector<double>& rows, cv::Size size) const {
  std::vector<labels::PixelBox> boxes;
  for (size_t at = 0; at < rows.size(); at += kBoxNumbers) {
    const double* const row = &rows[at];
    const bool is_box =
        row[0] >= 0 && row[0] < static_cast<double>(options_.num_classes) &&
        row[0] == std::floor(row[0]) && row[1] <= row[3] && row[2] <= row[4] &&
        std::isfinite(row[1] + row[2] + row[3] + row[4]);
    if (!is_box) {
      std::string shown;
      for (size_t i = 0; i < kBoxNumbers; ++i) {
        shown += " " + significant_text(row[i], 6);
      }
      fail("returned the box" + shown,
           cat("a box is class x1 y1 x2 y2 in pixels, with a class below ",
               options_.num_classes, ", x1 <= x2 and y1 <= y2"));
    }
    boxes.push_back(
        {static_cast<int32_t>(row[0]), row[1], row[2], row[3], row[4]});
  }
  auto result =
      labels::normalize_boxes(std::move(boxes), size.width, size.height);
  std::erase_if(result, [](const labels::NormalizedBox& box) {
    return box.w <= 0 || box.h <= 0;
  });
  return result;
}

void AugmentProgram::change(const SampleId& id, cv::Mat& pixels,
                            std::vector<labels::NormalizedBox>& boxes) {
  sample_ = cat("sample ", id.stream(), " of epoch ", id.epoch);
  deadline_ = Clock::now() + options_.patience;
  if (std::exchange(is_interrupted_, true) || !program_) start();
  const Json sent = {{"seed", id.seed},
                     {"epoch", id.epoch},
                     {"index", id.stream()},
                     {"height", pixels.rows},
                     {"width", pixels.cols},
                     {"channels", pixels.channels()},
                     {"dtype", pixels.depth() == CV_16U ? "uint16" : "uint8"},
                     {"boxes", boxes.size()}};
  const std::string header = sent.dump() + "\n";
  std::vector<double> rows;
  for (const auto& [class_index, cx, cy, w, h] : boxes) {
    rows.insert(rows.end(),
                {1.0 * class_index, (cx - w / 2) * pixels.cols,
                 (cy - h / 2) * pixels.rows, (cx + w / 2) * pixels.cols,
                 (cy + h / 2) * pixels.rows});
  }
  const size_t pixel_bytes = pixels.total() * pixels.elemSize();
  unwritten_ = {std::as_bytes(std::span(header)),
                std::as_bytes(std::span(rows)),
                std::as_bytes(std::span(pixels.data, pixel_bytes))};
  std::vector<double> new_rows(read_header(header) * kBoxNumbers);
  read(new_rows.data(), new_rows.size() * sizeof(double));
  cv::Mat new_pixels(pixels.size(), pixels.type());
  read(new_pixels.data, pixel_bytes);
  if (!unwritten_.empty() && !unwritten_.back().empty()) {
    fail("answered before it had read the sample", "read the whole sample");
  }
  boxes = boxes_of(new_rows, pixels.size());
  pixels = std::move(new_pixels);
  is_interrupted_ = false;
}

}  // namespace headroom::augment
