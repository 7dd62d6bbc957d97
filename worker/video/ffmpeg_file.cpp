#include "worker/video/ffmpeg_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

extern "C" {
#include <libavutil/error.h>
#include <libavutil/mem.h>
}

namespace headroom::video {
namespace {

constexpr int kBufferBytes = 64 << 10;

int descriptor_of(void* opaque) { return *static_cast<int*>(opaque); }

int read_bytes(void* opaque, uint8_t* buffer, int size) {
  const ssize_t got =
      ::read(descriptor_of(opaque), buffer, static_cast<size_t>(size));
  if (got < 0) return AVERROR(errno);
  return got == 0 ? AVERROR_EOF : static_cast<int>(got);
}

int write_bytes(void* opaque, uint8_t* buffer, int size) {
  int done = 0;
  while (done < size) {
    const ssize_t put = ::write(descriptor_of(opaque), buffer + done,
                                static_cast<size_t>(size - done));
    if (put < 0) return AVERROR(errno);
    done += static_cast<int>(put);
  }
  return done;
}

int64_t seek(void* opaque, int64_t offset, int whence) {
  const int descriptor = descriptor_of(opaque);
  if ((whence & AVSEEK_SIZE) != 0) {
    struct stat status {};
    return ::fstat(descriptor, &status) == 0 ? status.st_size : AVERROR(errno);
  }
  const off_t place = ::lseek(descriptor, offset, whence & ~AVSEEK_FORCE);
  return place < 0 ? AVERROR(errno) : place;
}

constexpr size_t kBytesOfRgb = 3;

}  // namespace

void CloseIo::operator()(AVIOContext* io) const {
  av_freep(&io->buffer);
  avio_context_free(&io);
}

void CloseInput::operator()(AVFormatContext* context) const {
  avformat_close_input(&context);
}

void CloseOutput::operator()(AVFormatContext* context) const {
  avformat_free_context(context);
}

FfmpegFile::~FfmpegFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string FfmpegFile::open(const std::string& path, Use use) {
  const bool writes = use == Use::kWrite;
  // O_NONBLOCK: opening a pipe would otherwise wait for its other end.
  descriptor_ = ::open(path.c_str(),
                       O_CLOEXEC | (writes ? O_WRONLY | O_CREAT | O_TRUNC
                                           : O_RDONLY | O_NONBLOCK),
                       0666);
  if (descriptor_ < 0) return std::strerror(errno);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return std::strerror(errno);
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  auto* const buffer = static_cast<uint8_t*>(av_malloc(kBufferBytes));
  if (buffer == nullptr) return "no memory";
  io_.reset(avio_alloc_context(buffer, kBufferBytes, writes ? 1 : 0,
                               &descriptor_, writes ? nullptr : read_bytes,
                               writes ? write_bytes : nullptr, seek));
  if (io_) return "";
  av_free(buffer);
  return "no memory";
}

std::string FfmpegFile::sync() {
  avio_flush(io_.get());
  if (io_->error < 0) return ffmpeg_error(io_->error);
  return ::fsync(descriptor_) == 0 ? "" : std::strerror(errno);
}

int refuse_to_open(AVFormatContext*, AVIOContext**, const char*, int,
                   AVDictionary**) {
  return AVERROR(EACCES);
}

std::string ffmpeg_error(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(code, text, sizeof text);
  return text;
}

Frame picture_frame(int width, int height, AVPixelFormat kind) {
  Frame frame(av_frame_alloc());
  if (!frame) return nullptr;
  frame->width = width;
  frame->height = height;
  frame->format = kind;
  if (av_frame_get_buffer(frame.get(), /*align=*/0) < 0) return nullptr;
  return frame;
}

void copy_rows(const AVFrame& frame, uint8_t* rows) {
  const size_t bytes = static_cast<size_t>(frame.width) * kBytesOfRgb;
  for (int y = 0; y < frame.height; ++y, rows += bytes) {
    std::memcpy(rows, frame.data[0] + ptrdiff_t{y} * frame.linesize[0], bytes);
  }
}

void copy_rows(const uint8_t* rows, AVFrame& frame) {
  const size_t bytes = static_cast<size_t>(frame.width) * kBytesOfRgb;
  for (int y = 0; y < frame.height; ++y, rows += bytes) {
    std::memcpy(frame.data[0] + ptrdiff_t{y} * frame.linesize[0], rows, bytes);
  }
}

bool Scaler::convert(const AVFrame& from, AVFrame& to) {
  SwsContext* const context =
      sws_getCachedContext(context_.release(), from.width, from.height,
                           static_cast<AVPixelFormat>(from.format), to.width,
                           to.height, static_cast<AVPixelFormat>(to.format),
                           SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT,
                           nullptr, nullptr, nullptr);
  context_.reset(context);
  if (context == nullptr) return false;
  // The file's colour properties; BT.601 if it has none.
  constexpr int kNeutral = 1 << 16;
  const auto range = [](const AVFrame& frame) {
    return frame.color_range == AVCOL_RANGE_JPEG ||
                   frame.format == AV_PIX_FMT_RGB24
               ? 1
               : 0;
  };
  sws_setColorspaceDetails(context, sws_getCoefficients(from.colorspace),
                           range(from), sws_getCoefficients(to.colorspace),
                           range(to), 0, kNeutral, kNeutral);
  return sws_scale(context, from.data, from.linesize, 0, from.height, to.data,
                   to.linesize) == to.height;
}

}  // namespace headroom::video
