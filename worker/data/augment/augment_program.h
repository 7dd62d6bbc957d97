// AugmentProgram: a program of the user (--augment-program) that changes
// training samples, after all other augmentation. It reads each sample from its
// standard input and writes it, changed, to its standard output:
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
// Threads: one; each thread of a loader has a program of its own, which is
// killed with the object. Errors: Error (exit 4) names the program, the sample
// and the fault; the next call starts the program anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <opencv2/core/mat.hpp>
#include <string>
#include <utility>
#include <vector>

#include "parallel/machine/piped_program.h"
#include "worker/data/augment/augment.h"
#include "worker/data/labels/pixel_box.h"

namespace headroom::augment {

struct ProgramOptions {
  std::string command;      // words, separated by spaces; "" means no program
  int64_t num_classes = 0;  // classes of boxes are below it
  int64_t most_boxes = 0;   // of a sample; memory is planned for them
  std::chrono::seconds patience{60};  // for a sample, the start included
};

class AugmentProgram {
 public:
  // `is_stopped` is asked while the program works; then change() throws.
  AugmentProgram(ProgramOptions options, std::function<bool()> is_stopped)
      : options_(std::move(options)), is_stopped_(std::move(is_stopped)) {}

  // Boxes that come back are clipped to the image, and those without area are
  // dropped. REQUIRES: continuous pixels.
  void change(const SampleId& id, cv::Mat& pixels,
              std::vector<labels::NormalizedBox>& boxes);

 private:
  void start();
  void read(void* bytes, size_t size);
  size_t read_header(const std::string& sent_header);  // number of boxes
  std::vector<labels::NormalizedBox> boxes_of(const std::vector<double>& rows,
                                              cv::Size size) const;
  [[noreturn]] void fail(const std::string& what,
                         const std::string& remedy) const;

  const ProgramOptions options_;
  const std::function<bool()> is_stopped_;
  std::string sample_;  // "sample 17 of epoch 3", for messages
  std::chrono::steady_clock::time_point deadline_;
  PipedProgram::Unwritten unwritten_;
  bool is_interrupted_ = false;  // the pipe may hold a part of a sample
  // Of standard error; written by the program's thread.
  int64_t error_lines_ = 0;
  std::string last_error_line_;
  std::unique_ptr<PipedProgram> program_;
};

}  // namespace headroom::augment
