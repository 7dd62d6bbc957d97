// headroom detect --source -: detects in pictures that another program sends.
// That program writes requests to a pipe and reads an answer to each from
// another; headroom_train.Detector (deploy/python) is such a program. A run
// with files uses the same code (opened_detector.h).
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
// with an Error (exit 2) if it receives anything but a request, and with an
// Error (exit 5) if the device fails or memory is short.
#pragma once

#include <cstdint>

#include "worker/tools/opened_detector.h"

namespace headroom::tools {

inline constexpr uint32_t kServiceMagic = 0x31445248;  // "HRD1"

enum class RequestKind : uint32_t {
  kPixels = 1,  // payload: height x width x channels samples, row after row
  kFile = 2,    // payload: the path of an image
  kFrame = 3,   // payload: the path of a video; `number` counts from 1
  kList = 4,    // payload: a source, as for --source
};

struct ServiceRequest {
  uint32_t magic = kServiceMagic;
  RequestKind kind = RequestKind::kPixels;
  uint32_t height = 0, width = 0, channels = 0;
  uint32_t bits = 0;     // bits of a sample; must be 8
  uint64_t number = 0;   // number of a frame, for kFrame
  uint64_t payload = 0;  // bytes
};
static_assert(sizeof(ServiceRequest) == 40);

enum class AnswerKind : uint32_t {
  kReady = 1,    // text: JSON with the classes and the accepted pictures
  kBoxes = 2,    // if the request was kFrame, with RGB pixels of 8 bits
  kSources = 3,  // text: per file 'i' (image), 'v' (video) or 'x' (left out:
                 // the reason), then the path, then a zero byte
  kRefused = 4,  // text: the reason and the remedy
  kEnd = 5,      // the video ends before this frame; text: its fault, or ""
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

// Runs headroom detect --source - on standard input and output. Standard output
// gets only answers; other output goes to standard error. Ignores Ctrl-C, which
// the terminal also sends to the program at the other end. Returns the exit
// code. Throws Error if standard input is a terminal, and for flags that only a
// run with files can have.
int run_detect_service(const DetectRequest& request);

}  // namespace headroom::tools
