// headroom detect --source -: detects for a program that goes on running. The
// program writes requests to a pipe and reads an answer to each from another;
// headroom_train.Detector (deploy/python) is such a program. The same code
// examines the pictures as in a run with files (opened_detector.h).
//
//   ServiceRequest | payload                 ServiceAnswer | boxes | text |
//   pixels
//
// Numbers have the byte order of the machine. A box is six float32: x1, y1, x2,
// y2 in pixels of the picture, score, class; boxes are in descending score.
//
// The first answer is kReady, without a request. A bad request is answered by
// kRefused, and its payload is skipped; sizes are checked before anything is
// allocated for them. The service ends when the pipe of requests is closed,
// with an Error (exit 2) if what arrives is no request, and with an Error (exit
// 5) if the device fails or memory is short.
#pragma once

#include <cstdint>

#include "worker/tools/opened_detector.h"

namespace headroom::tools {

inline constexpr uint32_t kServiceMagic = 0x31445248;  // "HRD1"

enum class RequestKind : uint32_t {
  kPixels = 1,  // payload: height x width x channels samples, row after row
  kFile = 2,    // payload: the path of an image
  kFrame = 3,   // payload: the path of a video; `number` counts from 1
  kList = 4,    // payload: what --source takes
};

struct ServiceRequest {
  uint32_t magic = kServiceMagic;
  RequestKind kind = RequestKind::kPixels;
  uint32_t height = 0, width = 0, channels = 0;
  uint32_t bits = 0;     // of a sample, unsigned; 8
  uint64_t number = 0;   // of a frame
  uint64_t payload = 0;  // bytes
};
static_assert(sizeof(ServiceRequest) == 40);

enum class AnswerKind : uint32_t {
  kReady = 1,    // text: JSON with the classes and the accepted pictures
  kBoxes = 2,    // for a frame, with its pixels: RGB, 8 bits
  kSources = 3,  // text: per file 'i' (image), 'v' (video) or 'x' (left out:
                 // the reason), then the path, then a zero byte
  kRefused = 4,  // text: why, and what to do
  kEnd = 5,      // the video has no such frame; text: its fault, if any
};

struct ServiceAnswer {
  uint32_t magic = kServiceMagic;
  AnswerKind kind = AnswerKind::kBoxes;
  uint32_t height = 0, width = 0;    // of the picture
  uint32_t boxes = 0, reserved = 0;  // number of boxes
  uint64_t text = 0, pixels = 0;     // bytes
};
static_assert(sizeof(ServiceAnswer) == 40);

// Answers requests from the descriptor `in` on the descriptor `out` until one
// of them is closed.
void serve_detection(OpenedDetector& opened, int in, int out);

// As headroom detect --source -, on standard input and output. Standard output
// has answers only: what else would be printed there goes to standard error.
// Ignores Ctrl-C, which also goes to the program that asks. Returns the exit
// code. Throws Error if standard input is a terminal, and for flags that only a
// run with files can have.
int run_detect_service(const DetectRequest& request);

}  // namespace headroom::tools
