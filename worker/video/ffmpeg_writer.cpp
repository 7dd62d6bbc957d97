#include "parallel/base/text.h"
#include "worker/video/ffmpeg_reader.h"

#include "worker/video/ffmpeg_file.h"

namespace headroom::video {
namespace {

constexpr int kMostSide = 8191;  // MPEG-4 writes sides in 13 bits
constexpr int kQuantiser = 3;    // 1 to 31; at 3 no loss is visible
constexpr int kGroupOfPictures = 25;

class Writer final : public VideoWriter {
 public:
  std::string open(const std::string& path, const VideoFormat& format);
  std::string write(const uint8_t* rgb) override;
  std::string finish() override;

 private:
  std::string open_encoder(const VideoFormat& format);
  // Sends a picture, or the end, to the encoder, and its packets to the file.
  std::string encode(const AVFrame* frame);

  FfmpegFile file_;  // outlives the container, which uses it
  std::unique_ptr<AVFormatContext, CloseOutput> container_;
  CodecContext encoder_;
  AVStream* stream_ = nullptr;  // owned by the container
  Packet packet_{av_packet_alloc()};
  Frame rgb_, coded_;
  Scaler scaler_;
  int64_t pictures_ = 0;
};

std::string Writer::open(const std::string& path, const VideoFormat& format) {
  if (format.width > kMostSide || format.height > kMostSide) {
    return cat(format.width, " x ", format.height,
               " pixels, but pictures in an MPEG-4 video have at most ",
               kMostSide, " a side");
  }
  std::string reason = file_.open(path, FfmpegFile::Use::kWrite);
  if (!reason.empty()) return reason;
  AVFormatContext* context = nullptr;
  avformat_alloc_output_context2(&context, nullptr, "mp4", nullptr);
  container_.reset(context);
  if (!container_ || !packet_) return "no memory";
  context->pb = file_.io();
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  context->io_open = refuse_to_open;
  reason = open_encoder(format);
  if (!reason.empty()) return reason;
  const int error = avformat_write_header(context, nullptr);
  return error < 0 ? ffmpeg_error(error) : "";
}

std::string Writer::open_encoder(const VideoFormat& format) {
  const AVCodec* const codec = avcodec_find_encoder(AV_CODEC_ID_MPEG4);
  if (codec == nullptr) return "this FFmpeg has no encoder of MPEG-4";
  encoder_.reset(avcodec_alloc_context3(codec));
  stream_ = avformat_new_stream(container_.get(), nullptr);
  rgb_ = picture_frame(format.width, format.height, AV_PIX_FMT_RGB24);
  coded_ = picture_frame(format.width, format.height, AV_PIX_FMT_YUV420P);
  if (!encoder_ || stream_ == nullptr || !rgb_ || !coded_) return "no memory";
  encoder_->width = format.width;
  encoder_->height = format.height;
  encoder_->pix_fmt = AV_PIX_FMT_YUV420P;
  encoder_->framerate = {format.rate, format.rate_denominator};
  encoder_->time_base = {format.rate_denominator, format.rate};
  encoder_->gop_size = kGroupOfPictures;
  encoder_->max_b_frames = 0;
  encoder_->thread_count = 1;
  encoder_->flags |= AV_CODEC_FLAG_QSCALE | AV_CODEC_FLAG_GLOBAL_HEADER;
  encoder_->global_quality = FF_QP2LAMBDA * kQuantiser;
  if (const int error = avcodec_open2(encoder_.get(), codec, nullptr);
      error < 0) {
    return "the encoder of MPEG-4 does not start (" + ffmpeg_error(error) + ")";
  }
  stream_->time_base = encoder_->time_base;
  stream_->avg_frame_rate = encoder_->framerate;
  const int error =
      avcodec_parameters_from_context(stream_->codecpar, encoder_.get());
  return error < 0 ? ffmpeg_error(error) : "";
}

std::string Writer::encode(const AVFrame* frame) {
  if (const int error = avcodec_send_frame(encoder_.get(), frame); error < 0) {
    return ffmpeg_error(error);
  }
  while (true) {
    int error = avcodec_receive_packet(encoder_.get(), packet_.get());
    if (error == AVERROR(EAGAIN) || error == AVERROR_EOF) return "";
    if (error < 0) return ffmpeg_error(error);
    packet_->stream_index = stream_->index;
    packet_->duration = 1;
    av_packet_rescale_ts(packet_.get(), encoder_->time_base,
                         stream_->time_base);
    error = av_interleaved_write_frame(container_.get(), packet_.get());
    if (error >= 0) error = container_->pb->error;
    if (error < 0) return ffmpeg_error(error);
  }
}

std::string Writer::write(const uint8_t* rgb) {
  if (av_frame_make_writable(coded_.get()) < 0) return "no memory";
  copy_rows(rgb, *rgb_);
  if (!scaler_.convert(*rgb_, *coded_)) return "colours cannot be converted";
  coded_->pts = pictures_++;
  coded_->quality = encoder_->global_quality;
  return encode(coded_.get());
}

std::string Writer::finish() {
  const std::string reason = encode(nullptr);
  if (!reason.empty()) return reason;
  if (const int error = av_write_trailer(container_.get()); error < 0) {
    return ffmpeg_error(error);
  }
  return file_.sync();
}

}  // namespace

std::unique_ptr<VideoWriter> create_video(const std::string& file,
                                          const VideoFormat& format,
                                          std::string& reason) {
  auto writer = std::make_unique<Writer>();
  reason = writer->open(file, format);
  if (!reason.empty()) return nullptr;
  return writer;
}

}  // namespace headroom::video
