#include "worker/data/augment/augment_program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "configs/augment_program.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::augment {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestHeader = 4096;  // bytes
constexpr size_t kBoxNumbers = 5;        // class, x1, y1, x2, y2
// Lines of standard error that reach the log, for each thread of a loader.
constexpr int64_t kMostErrorLines = 200;
// How long a program that has closed its output may take to end.
constexpr std::chrono::seconds kTimeToEnd{5};

std::vector<double> rows_of(const std::vector<labels::NormalizedBox>& boxes,
                            cv::Size size) {
  std::vector<double> rows;
  for (const labels::NormalizedBox& box : boxes) {
    rows.insert(rows.end(), {static_cast<double>(box.class_index),
                             (box.cx - box.w / 2) * size.width,
                             (box.cy - box.h / 2) * size.height,
                             (box.cx + box.w / 2) * size.width,
                             (box.cy + box.h / 2) * size.height});
  }
  return rows;
}

}  // namespace

AugmentProgram::AugmentProgram(ProgramOptions options,
                               std::function<bool()> is_stopped)
    : options_(std::move(options)), is_stopped_(std::move(is_stopped)) {}

void AugmentProgram::start() {
  program_.reset();
  unread_.clear();
  last_error_line_.clear();
  program_ = std::make_unique<PipedProgram>(
      configs::words_of_program(options_.command), kTimeToEnd,
      [this](const std::string& line) {
        if (!line.empty()) last_error_line_ = line;
        if (++error_lines_ > kMostErrorLines) return;
        log::info("augment program: " + printable(line));
        if (error_lines_ < kMostErrorLines) return;
        log::info("augment program: this thread's further lines are left out");
      });
}

void AugmentProgram::fail(const std::string& what,
                          const std::string& remedy) const {
  throw Error("augment",
              cat("--augment-program ", shell_word(options_.command), " ", what,
                  " (", sample_, ")"),
              remedy, ExitCode::kData);
}

size_t AugmentProgram::read_some(uint8_t* bytes, size_t size) {
  const auto may_wait = [this] {
    return Clock::now() < deadline_ && !is_stopped_();
  };
  const size_t got = program_->exchange(bytes, size, unwritten_, may_wait);
  if (got > 0) return got;
  if (!may_wait()) {
    fail(cat("did not return the sample within ", options_.patience.count(),
             " s"),
         "it must write each sample before it reads the next, and flush its "
         "output then; if it does, make it faster");
  }
  const std::string why = program_->finish();
  const std::string line = short_line(last_error_line_, 200);
  fail(cat("ended: ", why.empty() ? "it closed its output" : why,
           line.empty() ? "" : ": " + line),
       "its standard error is in the run's logs folder; headroom train "
       "--resume goes on from a checkpoint with the corrected program");
}

std::string AugmentProgram::read_line() {
  size_t end;
  while ((end = unread_.find('\n')) == unread_.npos &&
         unread_.size() < kLongestHeader) {
    std::array<uint8_t, kLongestHeader> bytes;
    unread_.append(bytes.begin(),
                   bytes.begin() + read_some(bytes.data(), bytes.size()));
  }
  const std::string line = unread_.substr(0, end);
  unread_.erase(0, line.size() + 1);
  return line;
}

void AugmentProgram::read(void* bytes, size_t size) {
  auto* const to = static_cast<uint8_t*>(bytes);
  size_t done = unread_.copy(static_cast<char*>(bytes), size);
  unread_.erase(0, done);
  while (done < size) done += read_some(to + done, size - done);
}

// Returns the number of boxes that the program's header announces.
size_t AugmentProgram::read_header(const nlohmann::ordered_json& sent) {
  const std::string line = read_line();
  const nlohmann::ordered_json answer =
      nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    fail("wrote '" + short_line(line, 60) + "' instead of a sample's header",
         "standard output is for samples: print to standard error, in Python "
         "with file=sys.stderr");
  }
  for (const auto& [key, value] : sent.items()) {
    const nlohmann::ordered_json given =
        answer.value(key, nlohmann::ordered_json());
    const bool fits =
        key == "boxes" ? given.is_number_unsigned() : given == value;
    if (fits) continue;
    fail(cat("answered \"", key, "\": ", short_line(given.dump(), 60), " to ",
             value.dump()),
         "return the header that came, with the new number of boxes: the size "
         "of samples is fixed");
  }
  const auto boxes = answer["boxes"].get<uint64_t>();
  const uint64_t most =
      std::max<uint64_t>(static_cast<uint64_t>(options_.most_boxes),
                         sent["boxes"].get<uint64_t>());
  if (boxes > most) {
    fail(cat("returned ", boxes, " boxes, and memory is planned for at most ",
             most, " in a sample, from the labels of the data set"),
         "return fewer");
  }
  return boxes;
}

std::vector<labels::NormalizedBox> AugmentProgram::checked(
    const std::vector<double>& rows, cv::Size size) const {
  std::vector<labels::PixelBox> boxes;
  for (size_t at = 0; at < rows.size(); at += kBoxNumbers) {
    const double* const row = &rows[at];
    const auto shown = [row] {
      return "the box " +
             joined(std::span(row, kBoxNumbers), " ",
                    [](double number) { return significant_text(number, 6); });
    };
    if (!(row[0] >= 0 && row[0] < static_cast<double>(options_.num_classes)) ||
        row[0] != std::floor(row[0])) {
      fail(cat("returned ", shown(), ", whose class is none of ",
               options_.num_classes),
           "classes are whole numbers from 0, in the order of names");
    }
    if (!std::all_of(row, row + kBoxNumbers,
                     [](double number) { return std::isfinite(number); }) ||
        row[1] > row[3] || row[2] > row[4]) {
      fail("returned " + shown(),
           "return class x1 y1 x2 y2 in pixels, with x1 <= x2 and y1 <= y2");
    }
    boxes.push_back(
        {static_cast<int32_t>(row[0]), row[1], row[2], row[3], row[4]});
  }
  std::vector<labels::NormalizedBox> result =
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
  const nlohmann::ordered_json header = {
      {"seed", id.seed},
      {"epoch", id.epoch},
      {"index", id.stream()},
      {"height", pixels.rows},
      {"width", pixels.cols},
      {"channels", pixels.channels()},
      {"dtype", pixels.depth() == CV_16U ? "uint16" : "uint8"},
      {"boxes", boxes.size()}};
  const std::string line = header.dump() + "\n";
  std::vector<double> rows = rows_of(boxes, pixels.size());
  const size_t pixel_bytes = pixels.total() * pixels.elemSize();
  const auto bytes_of = [](const void* data, size_t size) {
    return std::span(static_cast<const uint8_t*>(data), size);
  };
  unwritten_ = {bytes_of(line.data(), line.size()),
                bytes_of(rows.data(), rows.size() * sizeof(double)),
                bytes_of(pixels.data, pixel_bytes)};

  std::vector<double> new_rows(read_header(header) * kBoxNumbers);
  read(new_rows.data(), new_rows.size() * sizeof(double));
  cv::Mat new_pixels(pixels.size(), pixels.type());
  read(new_pixels.data, pixel_bytes);
  if (!unwritten_.empty() || !unread_.empty()) {
    fail(unread_.empty() ? "answered before it had read the sample"
                         : "wrote more than its header announced",
         "read and write boxes x 5 numbers of float64, and height x width x "
         "channels of dtype");
  }
  boxes = checked(new_rows, pixels.size());
  pixels = std::move(new_pixels);
  is_interrupted_ = false;
}

}  // namespace headroom::augment
