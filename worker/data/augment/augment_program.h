// AugmentProgram: a program of the user (--augment-program) that changes
// training samples. It is the last step of a sample's augmentation.
//
// The program reads samples from its standard input and writes each one,
// changed or not, to its standard output, in the same form:
//
//   {"seed":0,"epoch":3,"index":17,"height":640,"width":640,"channels":3,
//    "dtype":"uint8","boxes":2}                               one line of JSON
//   2 x 5 float64: class, x1, y1, x2, y2 in pixels
//   640 x 640 x 3 uint8: RGB, row after row; uint16 if the data set has a range
//
// Numbers have the machine's byte order. The answer has the same header, except
// for the number of boxes. Every change must follow from (seed, epoch, index):
// then any number of threads and ranks makes the same samples.
//
// Each thread of a loader has a program of its own, which is killed with the
// object. Threads: one. Errors: Error (exit 4) names the program, the sample
// and what was wrong; the next call starts the program anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "parallel/base/piped_program.h"
#include "worker/data/augment/augment.h"
#include "worker/data/labels/pixel_box.h"

namespace headroom::augment {

struct ProgramOptions {
  std::string command;      // configs/augment_program.h; "" means no program
  int64_t num_classes = 0;  // classes of boxes are below it
  // The most boxes that a sample may have, unless it had more before. The
  // plan's memory follows from this bound.
  int64_t most_boxes = 0;
  // The longest time for a sample, the program's start included: imports of
  // Python take many seconds on a network disk.
  std::chrono::seconds patience{60};
};

class AugmentProgram {
 public:
  // `is_stopped` is asked while the program works; then change() throws.
  AugmentProgram(ProgramOptions options, std::function<bool()> is_stopped);

  // Passes the sample through the program. Boxes are clipped to the image, and
  // those without area are dropped. REQUIRES: continuous pixels.
  void change(const SampleId& id, cv::Mat& pixels,
              std::vector<labels::NormalizedBox>& boxes);

 private:
  void start();
  // They fail if the program is late or has ended.
  size_t read_some(uint8_t* bytes, size_t size);
  void read(void* bytes, size_t size);  // takes from `unread_` first
  std::string read_line();
  size_t read_header(const nlohmann::ordered_json& sent);
  std::vector<labels::NormalizedBox> checked(const std::vector<double>& rows,
                                             cv::Size size) const;
  [[noreturn]] void fail(const std::string& what,
                         const std::string& remedy) const;

  const ProgramOptions options_;
  const std::function<bool()> is_stopped_;
  std::string sample_;  // "sample 17 of epoch 3", for messages
  std::chrono::steady_clock::time_point deadline_;
  PipedProgram::Unwritten unwritten_;
  std::string unread_;  // was read beyond a header
  // Whether the last sample was not returned whole, so that the pipe may hold a
  // part of it.
  bool is_interrupted_ = false;
  // Of standard error. The program's thread writes both while it runs.
  int64_t error_lines_ = 0;
  std::string last_error_line_;
  std::unique_ptr<PipedProgram> program_;
};

}  // namespace headroom::augment
