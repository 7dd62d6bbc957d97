#include "worker/tools/detect_service.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <list>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/base/value_range.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/detect/detection_folder.h"
#include "worker/detect/image_sources.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/video/video.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestPath = 1 << 16;
constexpr size_t kLongestText = 8192;
// The most open videos; each has a process of ffmpeg. If programs read more
// videos in turn, a video is decoded again from its start.
constexpr size_t kMostVideos = 8;

// Returns the number of bytes that were read; smaller than `size` only at the
// end of the pipe.
size_t read_all(int in, void* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::read(in, static_cast<uint8_t*>(bytes) + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

// Returns false if the reader has closed the pipe.
bool write_all(int out, const void* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t put =
        ::write(out, static_cast<const uint8_t*>(bytes) + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

// A video, and how many of its frames were read.
struct OpenVideo {
  fs::path path;
  std::unique_ptr<video::VideoReader> reader;
  uint64_t frames_read = 0;
};

struct Answer {
  AnswerKind kind = AnswerKind::kBoxes;
  codecs::ImageSize size;
  std::vector<metrics::Detection> boxes;
  std::string text;
  cv::Mat pixels;  // empty, or continuous
};

Answer refused(const std::string& why) {
  return {.kind = AnswerKind::kRefused,
          .size = {},
          .boxes = {},
          .text = short_line(why, kLongestText),
          .pixels = {}};
}

class DetectService {
 public:
  DetectService(OpenedDetector& opened, int in, int out)
      : opened_(opened), in_(in), out_(out) {}

  void run() {
    bool goes_on = send(ready());
    ServiceRequest request;
    while (goes_on &&
           read_all(in_, &request, sizeof request) == sizeof request) {
      if (request.magic != kServiceMagic) {
        throw Error("detect", "what arrives on standard input is no request",
                    "--source - is for programs (headroom_train.Detector): "
                    "name files with --source PATH");
      }
      unread_ = request.payload;
      const Answer answer = answer_to(request);
      goes_on = skip_rest() && send(answer);
    }
  }

 private:
  Answer ready() const;
  Answer answer_to(const ServiceRequest& request);
  Answer boxes_in_pixels(const ServiceRequest& request);
  Answer boxes_in_file(const fs::path& file);
  Answer boxes_in_frame(const fs::path& video, uint64_t number);
  // Moves the open video that is nearest before the frame to the front of
  // videos_, or opens the video. Returns the reason of a failure, or "".
  std::string bring_forward(const fs::path& video, uint64_t number);
  Answer examined(const ServiceRequest& request);
  Answer sources_of(const std::string& source) const;
  // Why the picture that the request announces is refused; "" if it is valid.
  std::string fault_of(const ServiceRequest& request) const;

  bool read_payload(void* bytes, size_t size);
  bool skip_rest();
  bool send(const Answer& answer) const;

  OpenedDetector& opened_;
  const int in_, out_;
  uint64_t unread_ = 0;  // bytes of the payload that were not read yet
  cv::Mat pixels_;       // of the newest request; kept to reuse its memory
  std::list<OpenVideo> videos_;  // at most kMostVideos, the last used one first
};

bool DetectService::read_payload(void* bytes, size_t size) {
  const size_t got = read_all(in_, bytes, size);
  unread_ -= got;
  return got == size;
}

bool DetectService::skip_rest() {
  std::array<uint8_t, 1 << 16> bytes;
  while (unread_ > 0) {
    if (!read_payload(bytes.data(), std::min<uint64_t>(bytes.size(), unread_)))
      return false;
  }
  return true;
}

bool DetectService::send(const Answer& answer) const {
  std::vector<float> rows;
  for (const metrics::Detection& one : answer.boxes) {
    rows.insert(rows.end(),
                {one.box.x1, one.box.y1, one.box.x2, one.box.y2, one.confidence,
                 static_cast<float>(one.class_index)});
  }
  const ServiceAnswer head = {
      .kind = answer.kind,
      .height = static_cast<uint32_t>(answer.size.height),
      .width = static_cast<uint32_t>(answer.size.width),
      .boxes = static_cast<uint32_t>(answer.boxes.size()),
      .text = answer.text.size(),
      .pixels = answer.pixels.total() * answer.pixels.elemSize()};
  return write_all(out_, &head, sizeof head) &&
         write_all(out_, rows.data(), rows.size() * sizeof(float)) &&
         write_all(out_, answer.text.data(), answer.text.size()) &&
         write_all(out_, answer.pixels.data, head.pixels);
}

Answer DetectService::ready() const {
  const std::vector<std::string>& names = opened_.weights().class_names;
  const nlohmann::json facts = {{"names", names},
                                {"categories", detect::usual_categories(names)},
                                {"height", opened_.options().height},
                                {"width", opened_.options().width},
                                {"channels", opened_.limits().bands}};
  Answer answer;
  answer.kind = AnswerKind::kReady;
  answer.text =
      facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return answer;
}

std::string DetectService::fault_of(const ServiceRequest& request) const {
  const codecs::ImageLimits& limits = opened_.limits();
  if (!limits.ranges.empty()) {
    return "the weights were trained on values of " + to_text(limits.ranges) +
           ": give the image's file, which has such values";
  }
  if (request.bits != 8) {
    return cat("samples have 8 bits, but the picture has ", request.bits);
  }
  if (request.channels != static_cast<uint32_t>(limits.bands)) {
    return cat("the model's pictures have ", limits.bands,
               " channels, but this one has ", request.channels);
  }
  // The products do not overflow: all factors have at most 32 bits.
  const uint64_t area = uint64_t{request.height} * request.width;
  if (area == 0 || area > static_cast<uint64_t>(limits.max_pixels)) {
    return cat("a picture of ", request.height, " x ", request.width,
               " pixels: it may have 1 to ", limits.max_pixels);
  }
  const uint64_t bytes = area * request.channels;
  if (request.payload != bytes) {
    return cat("the picture has ", bytes, " bytes, but ", request.payload,
               " were announced");
  }
  return "";
}

Answer DetectService::boxes_in_pixels(const ServiceRequest& request) {
  const std::string fault = fault_of(request);
  if (!fault.empty()) return refused("[detect] " + fault);
  pixels_.create(static_cast<int>(request.height),
                 static_cast<int>(request.width), opened_.limits().type());
  if (!read_payload(pixels_.data, request.payload))
    return {};  // the pipe ended
  Answer answer;
  answer.size = {pixels_.rows, pixels_.cols};
  answer.boxes = opened_.detector().detect(pixels_);
  return answer;
}

Answer DetectService::boxes_in_file(const fs::path& file) {
  const OpenedDetector::Picture picture = opened_.look_in(
      file, std::nullopt,
      [](const detect::TileFindings&) { return [](size_t) { return true; }; });
  if (!picture.reason.empty()) {
    return refused(file.string() + ": " + picture.reason);
  }
  Answer answer;
  answer.size = picture.tiles.size;
  answer.boxes = opened_.detector().merged(picture.tiles);
  return answer;
}

std::string DetectService::bring_forward(const fs::path& video,
                                         uint64_t number) {
  auto best = videos_.end();
  for (auto one = videos_.begin(); one != videos_.end(); ++one) {
    if (one->path == video && one->frames_read < number &&
        (best == videos_.end() || one->frames_read > best->frames_read)) {
      best = one;
    }
  }
  if (best != videos_.end()) {
    videos_.splice(videos_.begin(), videos_, best);
    return "";
  }
  const auto [why, remedy] = opened_.obstacle_to(video);
  if (!why.empty()) return why + ": " + remedy;
  std::string fault;
  auto reader = video::open_video(
      video.string(), {.max_pixels = opened_.limits().max_pixels}, fault);
  if (!reader) return fault;
  videos_.push_front({.path = video, .reader = std::move(reader)});
  if (videos_.size() > kMostVideos) videos_.pop_back();
  return "";
}

// Programs usually request the frames of a video in order. For a frame before
// the positions of all open copies, the video is decoded from its start.
Answer DetectService::boxes_in_frame(const fs::path& video, uint64_t number) {
  if (number == 0) return refused("[detect] frames of a video count from 1");
  const std::string why = bring_forward(video, number);
  if (!why.empty()) return refused(video.string() + ": " + why);
  OpenVideo& open = videos_.front();
  Answer answer;
  answer.pixels.create(open.reader->format().height,
                       open.reader->format().width, CV_8UC3);
  for (; open.frames_read < number; ++open.frames_read) {
    if (open.reader->next(answer.pixels.data)) continue;
    answer = {};
    answer.kind = AnswerKind::kEnd;
    answer.text = short_line(open.reader->fault(), kLongestText);
    videos_.pop_front();
    return answer;
  }
  answer.size = {answer.pixels.rows, answer.pixels.cols};
  answer.boxes = opened_.detector().detect(answer.pixels);
  return answer;
}

Answer DetectService::sources_of(const std::string& source) const {
  const detect::ImageSources sources = detect::find_images(source);
  Answer answer;
  answer.kind = AnswerKind::kSources;
  const auto add = [&](char kind, const std::string& what) {
    answer.text += kind + what + '\0';
  };
  for (const fs::path& image : sources.images) add('i', image.string());
  for (const fs::path& video : sources.videos) add('v', video.string());
  for (const std::string& line : sources.left_out) add('x', line);
  return answer;
}

Answer DetectService::examined(const ServiceRequest& request) {
  if (request.kind == RequestKind::kPixels) return boxes_in_pixels(request);
  if (request.payload == 0 || request.payload > kLongestPath) {
    return refused(cat("[detect] a path has 1 to ", kLongestPath,
                       " bytes, but this one has ", request.payload));
  }
  std::string path(request.payload, '\0');
  if (!read_payload(path.data(), path.size())) return {};  // the pipe ended
  if (path.find('\0') != std::string::npos) {
    return refused("[detect] a path has no zero byte, but this one has");
  }
  if (request.kind == RequestKind::kFile) return boxes_in_file(path);
  if (request.kind == RequestKind::kFrame) {
    return boxes_in_frame(path, request.number);
  }
  if (request.kind == RequestKind::kList) return sources_of(path);
  return refused(cat("[detect] there is no request of kind ",
                     static_cast<uint32_t>(request.kind)));
}

// Answers a faulty request with kRefused. If the machine lacks memory or the
// device fails, throws instead, because a refusal would blame the picture.
Answer DetectService::answer_to(const ServiceRequest& request) {
  const auto fail = [](const std::string& what) {
    return Error("detect", what,
                 "use smaller pictures, --tile, or another --device",
                 ExitCode::kResource);
  };
  try {
    return examined(request);
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kResource) throw;
    return refused(error.what());
  } catch (const fs::filesystem_error& error) {  // such as a name too long
    return refused(error.what());
  } catch (const c10::Error& error) {
    throw fail(std::string("the network cannot look at a picture: ") +
               short_line(error.what_without_backtrace(), kLongestText));
  } catch (const std::bad_alloc&) {
    throw fail("there is no memory for a picture");
  } catch (const cv::Exception& error) {
    if (error.code == cv::Error::StsNoMem)
      throw fail("there is no memory for a picture");
    return refused("[detect] the picture cannot be used: " + error.err);
  }
}

// A given flag about files, pictures or videos that has no effect here.
const char* flag_without_use(const DetectRequest& request) {
  const detect::FolderOptions& folder = request.folder;
  const std::pair<bool, const char*> flags[] = {
      {folder.text, "--save-txt"},
      {folder.confidences_in_text, "--save-conf"},
      {folder.csv, "--save-csv"},
      {folder.json, "--save-json"},
      {request.layers.geojson, "--save-geojson"},
      {request.layers.geopackage, "--save-gpkg"},
      {folder.crops, "--save-crop"},
      {!folder.pictures, "--nosave"},
      {!folder.annotate.labels, "--hide-labels"},
      {!folder.annotate.confidences, "--hide-conf"},
      {folder.annotate.line_width != 0, "--line-thickness"},
      {request.video_stride > 1, "--vid-stride"},
      {folder.may_exist, "--exist-ok"},
      {request.resume, "--resume"}};
  for (const auto& [is_given, flag] : flags) {
    if (is_given) return flag;
  }
  return nullptr;
}

}  // namespace

void serve_detection(OpenedDetector& opened, int in, int out) {
  DetectService(opened, in, out).run();
}

int run_detect_service(const DetectRequest& request) {
  if (::isatty(STDIN_FILENO) == 1) {
    throw Error("detect",
                "--source - reads from a program, not from a terminal",
                "use headroom_train.Detector in Python, or name files");
  }
  if (const char* flag = flag_without_use(request)) {
    throw Error("detect",
                std::string(flag) +
                    " means nothing with --source -, which only sends boxes",
                "leave it out");
  }
  kernels::keep_freed_memory();  // all pictures need memory of similar sizes
  OpenedDetector opened(request);
  std::signal(SIGINT, SIG_IGN);
  const int out = ::dup(STDOUT_FILENO);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Error(
        "detect",
        std::string("standard output cannot be used: ") + std::strerror(errno),
        "open it", ExitCode::kResource);
  }
  serve_detection(opened, STDIN_FILENO, out);
  ::close(out);
  return 0;
}

}  // namespace headroom::tools
