#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/machine/piped_program.h"
#include "worker/video/video.h"

namespace headroom::video {
namespace {

using Words = std::vector<std::string>;

// MP4 and QuickTime, Matroska and WebM, AVI, MPEG streams, ASF, GIF. Formats
// that list other files (HLS, concat, SDP, image sequences) are left out.
constexpr const char* kContainers =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,asf,gif";
// The decoders that may open a video stream: one or more for each codec that is
// read, because FFmpeg's builds differ. The last four are for cover pictures,
// which FFmpeg opens beside the film.
constexpr const char* kDecoders =
    "h264,libopenh264,hevc,mpeg4,msmpeg4v1,msmpeg4v2,msmpeg4,mpeg1video,"
    "mpeg2video,vp8,libvpx,vp9,libvpx-vp9,libdav1d,libaom-av1,av1,mjpeg,wmv1,"
    "wmv2,wmv3,vc1,gif,prores,png,bmp,tiff,webp";
constexpr int64_t kMostRate = 65535;  // the limit of MPEG-4's clock
constexpr size_t kLongestAnswer = 1 << 16;

// Returns why `file` is not a regular file that can be opened, "" if it is.
std::string check_file(const std::string& file) {
  // O_NONBLOCK: opening a pipe would otherwise wait for its other end.
  const int descriptor =
      ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::strerror(errno);
  struct stat status {};
  const bool is_known = ::fstat(descriptor, &status) == 0;
  ::close(descriptor);
  return is_known && S_ISREG(status.st_mode) ? "" : "it is no regular file";
}

std::string check_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width > 0 && height > 0 && height <= max_pixels / width) return "";
  return cat("pictures of ", width, " x ", height, " pixels, of which at most ",
             max_pixels, " are read");
}

// Adds the arguments with which ffprobe and ffmpeg open `file`: only as a local
// file, only in one of kContainers, and with kDecoders for its video streams. A
// list of decoders for all streams would refuse videos with sound. The limit
// for a picture is above `max_pixels`, because decoders add borders.
void add_input(Words& words, const std::string& file, int64_t max_pixels) {
  constexpr int64_t kBorders = 1 << 20;
  words.insert(
      words.end(),
      {"-protocol_whitelist", "file", "-format_whitelist", kContainers,
       "-codec_whitelist:v", kDecoders, "-max_pixels",
       std::to_string(2 * max_pixels + kBorders), "-i", "file:" + file});
}

// "30000/1001" -> {30000, 1001}; {0, 1} if the file does not state it.
std::pair<int64_t, int64_t> ratio_of(const nlohmann::json& stream,
                                     const char* key) {
  std::istringstream text(stream.value(key, "0/0"));
  int64_t above = 0, below = 0;
  char slash = 0;
  text >> above >> slash >> below;
  if (above <= 0 || below <= 0) return {0, 1};
  return {above, below};
}

double value_of(const std::pair<int64_t, int64_t>& ratio) {
  return static_cast<double>(ratio.first) / static_cast<double>(ratio.second);
}

// A stream's base rate may count fields (half pictures), or be guessed from the
// clock's ticks. In these cases the average rate is far smaller, and is the
// right one.
void read_rate(const nlohmann::json& stream, VideoFormat& format) {
  auto rate = ratio_of(stream, "r_frame_rate");
  const auto average = ratio_of(stream, "avg_frame_rate");
  constexpr double kFarSmaller = 0.7;
  if (average.first > 0 &&
      (rate.first == 0 || value_of(average) < kFarSmaller * value_of(rate))) {
    rate = average;
  }
  if (rate.first == 0) return;
  if (rate.first > kMostRate) {
    const double value = value_of(rate);
    rate.second = std::max<int64_t>(
        1, std::llround(static_cast<double>(kMostRate) / value));
    rate.first = std::min<int64_t>(
        kMostRate, std::llround(value * static_cast<double>(rate.second)));
  }
  format.rate = rate.first;
  format.rate_denominator = rate.second;
}

// Returns the film among the video streams: the largest stream. A stream of a
// single picture, such as a poster, is the film only if there is no other
// stream. ffprobe has already left out cover pictures and thumbnails. REQUIRES:
// there is a stream.
const nlohmann::json& film_of(const nlohmann::json& streams) {
  const auto rank = [](const nlohmann::json& stream) {
    return std::pair(
        stream.value("nb_frames", "") != "1",
        stream.value("width", int64_t{0}) * stream.value("height", int64_t{0}));
  };
  return *std::ranges::max_element(streams, {}, rank);
}

// Sets the number of pictures that the file states. An edit list of an MP4 or
// MOV can hide pictures at both ends. It states a duration, from which their
// number follows only approximately. Returns the number that a whole file has
// at least.
int64_t read_count(const nlohmann::json& stream, const std::string& container,
                   VideoFormat& format) {
  format.pictures = parse_whole(stream.value("nb_frames", ""), 0).value_or(0);
  const double seconds =
      nlohmann::json::parse(stream.value("duration", "0")).get<double>();
  const auto shown =
      std::llround(seconds * value_of(ratio_of(stream, "avg_frame_rate")));
  if (!container.starts_with("mov") || shown <= 0 || shown >= format.pictures) {
    return format.pictures;
  }
  format.pictures = shown;
  return shown - std::max<int64_t>(2, shown / 100);
}

// Returns whether a GIF has its last byte, the only sign that it is whole.
bool has_end_of_gif(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return stream.seekg(-1, std::ios::end) && stream.get() == ';';
}

// The number of clockwise quarter turns, 0 to 3, that make pictures upright.
// Telephones store pictures as the camera was held.
int quarter_turns(const nlohmann::json& stream) {
  double counter_clockwise = 0;
  for (const auto& data :
       stream.value("side_data_list", nlohmann::json::array())) {
    counter_clockwise = data.value("rotation", counter_clockwise);
  }
  const auto turns = std::lround(-counter_clockwise / 90) % 4;
  return static_cast<int>((turns + 4) % 4);
}

// The name of ffmpeg's option for neither dropping nor repeating pictures.
// FFmpeg 5.1 (libavutil 57.28) renamed it, and later versions do not accept the
// former name.
const char* rate_option(const nlohmann::json& answer) {
  for (const auto& library : answer.at("library_versions")) {
    if (library.value("name", "") == "libavutil" &&
        std::pair(library.value("major", 0), library.value("minor", 0)) >=
            std::pair(57, 28)) {
      return "-fps_mode";
    }
  }
  return "-vsync";
}

class Reader final : public VideoReader {
 public:
  explicit Reader(const ReadOptions& options) : options_(options) {}

  // Returns why `file` cannot be read, "" if it can.
  std::string open(const std::string& file);
  const VideoFormat& format() const override { return format_; }
  bool next(uint8_t* rgb) override;
  std::string fault() const override;

 private:
  // Sets `answer` to ffprobe's output. Returns why that failed, "" on success.
  std::string ask(const std::string& file, nlohmann::json& answer) const;
  std::string start(const std::string& file, const nlohmann::json& answer);

  const ReadOptions options_;
  VideoFormat format_;
  std::unique_ptr<PipedProgram> program_;
  bool lacks_end_ = false;
  int64_t stated_ = 0;    // number of pictures that a whole file has at least
  int64_t pictures_ = 0;  // number of pictures read
  std::string failure_;   // ffmpeg's failure; set at the end
};

std::string Reader::open(const std::string& file) {
  std::string reason = check_file(file);
  if (!reason.empty()) return reason;
  try {
    nlohmann::json answer;
    reason = ask(file, answer);
    return reason.empty() ? start(file, answer) : reason;
  } catch (const nlohmann::json::exception& error) {
    return cat("ffprobe's answer is not understood: ", error.what());
  }
}

std::string Reader::ask(const std::string& file, nlohmann::json& answer) const {
  Words words = {
      "ffprobe",
      "-v",
      "error",
      "-of",
      "json",
      "-show_error",
      "-select_streams",
      "V",
      "-show_entries",
      "format=format_name:stream=index,width,height,nb_frames,duration,"
      "r_frame_rate,avg_frame_rate:"
      "stream_side_data=rotation:library_version=name,major,minor"};
  add_input(words, file, options_.max_pixels);
  PipedProgram program(words, options_.patience);
  std::string text(kLongestAnswer, '\0');
  text.resize(
      program.read(reinterpret_cast<uint8_t*>(text.data()), text.size()));
  const std::string failure = program.finish();
  answer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains("error")) {
    return cat("it cannot be opened (", answer["error"].value("string", "?"),
               "): read are MP4, MOV, MKV, WebM, AVI, MPEG, ASF and GIF files "
               "that are whole");
  }
  // ffprobe does not say in its answer which decoder is not in the list.
  if (!failure.empty() && !program.first_error().empty()) {
    return failure + "; convert it, for example to H.264";
  }
  return failure;
}

std::string Reader::start(const std::string& file,
                          const nlohmann::json& answer) {
  if (answer.at("streams").empty()) return "there is no video in it";
  const nlohmann::json& stream = film_of(answer.at("streams"));
  const int width = stream.value("width", 0),
            height = stream.value("height", 0);
  std::string reason = check_size(width, height, options_.max_pixels);
  if (!reason.empty()) return reason;
  format_.width = width;
  format_.height = height;
  const int turns = quarter_turns(stream);
  if (turns % 2 == 1) std::swap(format_.width, format_.height);
  const std::string container = answer.at("format").value("format_name", "");
  stated_ = read_count(stream, container, format_);
  lacks_end_ = container == "gif" && !has_end_of_gif(file);
  read_rate(stream, format_);

  // The filter `crop` leaves pictures unchanged. It fails if a later picture
  // has another size, which ffmpeg would otherwise scale; users see the
  // filter's name in the message. `setpts` replaces the times, because ffmpeg
  // would report equal times in the file as errors.
  std::string filters =
      cat("crop@all_pictures_have_one_size=w='if(eq(in_w,", width, ")*eq(in_h,",
          height, "),in_w,0)':h=in_h:exact=1");
  if (options_.stride > 1) {
    filters += cat(",select='not(mod(n,", options_.stride, "))'");
  }
  constexpr const char* kTurns[] = {"", ",transpose=clock", ",hflip,vflip",
                                    ",transpose=cclock"};
  filters +=
      cat(",scale=flags=bilinear+accurate_rnd+full_chroma_int,"
          "format=rgb24",
          kTurns[turns], ",setpts=1000*N/TB");
  Words words = {"ffmpeg",   "-v", "repeat+level+error", "-nostdin",
                 "-threads", "1",  "-noautorotate"};
  add_input(words, file, options_.max_pixels);
  words.insert(words.end(), {"-map", cat("0:", stream.at("index").get<int>()),
                             "-vf", filters, rate_option(answer), "passthrough",
                             "-threads", "1", "-f", "rawvideo", "pipe:1"});
  // Allow one second for each skipped picture; decoding it takes far less.
  program_ = std::make_unique<PipedProgram>(
      words, options_.patience + std::chrono::seconds(options_.stride - 1));
  return "";
}

bool Reader::next(uint8_t* rgb) {
  const size_t bytes = format_.picture_bytes();
  if (program_->read(rgb, bytes) == bytes) {
    ++pictures_;
    return true;
  }
  failure_ = program_->finish();
  return false;
}

std::string Reader::fault() const {
  if (!failure_.empty()) {
    return cat("after ", counted(pictures_, "picture"), " ", failure_);
  }
  const int64_t passed = pictures_ * options_.stride;
  const std::string read =
      passed < stated_
          ? cat(passed, " of ", counted(format_.pictures, "picture"))
          : counted(pictures_, "picture");
  if (program_->error_lines() > 0) {
    return cat("ffmpeg reports ", counted(program_->error_lines(), "error"),
               ", the first: ", program_->first_error(), "; ", read,
               " could be decoded");
  }
  if (passed < stated_) return "it ends after " + read;
  return lacks_end_ ? "it lacks the end mark of a GIF, and ends after " + read
                    : "";
}

}  // namespace

std::string check_programs() {
  for (const char* name : {"ffmpeg", "ffprobe"}) {
    PipedProgram program({name, "-version"}, std::chrono::seconds(10));
    uint8_t bytes[4096];
    while (program.read(bytes, sizeof bytes) > 0) {
    }
    std::string reason = program.finish();
    if (!reason.empty()) return reason;
  }
  return "";
}

std::unique_ptr<VideoReader> open_video(const std::string& file,
                                        const ReadOptions& options,
                                        std::string& reason) {
  auto reader = std::make_unique<Reader>(options);
  reason = reader->open(file);
  if (!reason.empty()) return nullptr;
  return reader;
}

}  // namespace headroom::video
