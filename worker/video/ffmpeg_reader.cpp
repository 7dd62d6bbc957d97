#include "worker/video/ffmpeg_reader.h"

#include <algorithm>
#include <cmath>

#include "parallel/base/text.h"
#include "worker/video/ffmpeg_file.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/display.h>
#include <libavutil/mem.h>
}

namespace headroom::video {
namespace {

// MP4 and QuickTime, Matroska and WebM, AVI, MPEG streams, ASF, GIF. Formats
// that list other files (HLS, concat, SDP, image sequences) are left out.
constexpr const char* kContainers =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,asf,gif";
constexpr const char* kCodecs =
    "h264,hevc,mpeg4,msmpeg4,msmpeg4v2,msmpeg4v1,mpeg1video,mpeg2video,vp8,"
    "vp9,libdav1d,mjpeg,wmv1,wmv2,wmv3,vc1,gif,prores";
// More faults in a row end the file: reading a damaged one could take hours.
constexpr int64_t kMostFaultsInARow = 1000;
constexpr int kMostRate = 65535;  // the limit of MPEG-4's clock

bool is_listed(const char* list, const std::string& name) {
  return ("," + std::string(list) + ",").find("," + name + ",") !=
         std::string::npos;
}

std::string size_text(int64_t width, int64_t height) {
  return cat(width, " x ", height);
}

std::string check_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width > 0 && height > 0 && height <= max_pixels / width) return "";
  return cat("pictures of ", size_text(width, height),
             " pixels, of which at most ", max_pixels, " are read");
}

int quarter_turns(const AVStream& stream) {
  const auto* const matrix = reinterpret_cast<const int32_t*>(
      av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr));
  if (matrix == nullptr) return 0;
  const double counter_clockwise = av_display_rotation_get(matrix);
  if (std::isnan(counter_clockwise)) return 0;
  const int turns = static_cast<int>(std::lround(-counter_clockwise / 90));
  return (turns % 4 + 4) % 4;
}

class Reader final : public VideoReader {
 public:
  std::string open(const std::string& path, int64_t max_pixels);
  const VideoFormat& format() const override { return format_; }
  bool next(uint8_t* rgb) override;
  std::string fault() const override;

 private:
  std::string open_container(int64_t max_pixels);
  std::string open_decoder(int64_t max_pixels);
  // Decodes the next picture into frame_. Returns false at the end.
  bool decode();
  // Sends the stream's next packet, or the end, to the decoder.
  void feed();

  FfmpegFile file_;  // outlives the container, which uses it
  std::unique_ptr<AVFormatContext, CloseInput> container_;
  CodecContext decoder_;
  AVStream* stream_ = nullptr;  // owned by the container
  Packet packet_{av_packet_alloc()};
  Frame frame_{av_frame_alloc()};
  Frame rgb_;
  Scaler scaler_;
  VideoFormat format_;
  int64_t pictures_ = 0;  // pictures so far
  int64_t damaged_ = 0;
  bool at_end_ = false;    // no packets are left
  std::string end_error_;  // why the stream ended early
};

std::string Reader::open(const std::string& path, int64_t max_pixels) {
  std::string reason = file_.open(path, FfmpegFile::Use::kRead);
  if (!reason.empty()) return reason;
  if (!packet_ || !frame_) return "no memory";
  reason = open_container(max_pixels);
  return reason.empty() ? open_decoder(max_pixels) : reason;
}

std::string Reader::open_container(int64_t max_pixels) {
  AVFormatContext* context = avformat_alloc_context();
  if (context == nullptr) return "no memory";
  context->pb = file_.io();
  context->flags |= AVFMT_FLAG_CUSTOM_IO;
  context->io_open = refuse_to_open;
  context->format_whitelist = av_strdup(kContainers);
  context->codec_whitelist = av_strdup(kCodecs);
  // avformat_open_input frees the context on failure.
  if (const int error = avformat_open_input(&context, "", nullptr, nullptr);
      error < 0) {
    return "it cannot be opened (" + ffmpeg_error(error) +
           "): read are MP4, MOV, MKV, WebM, AVI, MPEG, ASF and GIF files that "
           "are whole";
  }
  container_.reset(context);
  for (unsigned i = 0; i < context->nb_streams; ++i) {
    AVStream& stream = *context->streams[i];
    const AVCodecParameters& coded = *stream.codecpar;
    if (coded.codec_type != AVMEDIA_TYPE_VIDEO) {
      stream.discard = AVDISCARD_ALL;
    } else if (coded.width > 0 && coded.height > 0) {
      // Checked before any picture is decoded.
      std::string reason = check_size(coded.width, coded.height, max_pixels);
      if (!reason.empty()) return reason;
    }
  }
  avformat_find_stream_info(context, nullptr);
  const int index =
      av_find_best_stream(context, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
  if (index < 0 || (context->streams[index]->disposition &
                    AV_DISPOSITION_ATTACHED_PIC) != 0) {
    return "there is no video in it";
  }
  stream_ = context->streams[index];
  for (unsigned i = 0; i < context->nb_streams; ++i) {
    if (context->streams[i] != stream_) {
      context->streams[i]->discard = AVDISCARD_ALL;
    }
  }
  return "";
}

std::string Reader::open_decoder(int64_t max_pixels) {
  const AVCodecParameters& coded = *stream_->codecpar;
  const AVCodec* const codec = avcodec_find_decoder(coded.codec_id);
  if (codec == nullptr || !is_listed(kCodecs, codec->name)) {
    return "its pictures are coded as " +
           std::string(avcodec_get_name(coded.codec_id)) +
           ", which is not read: convert it, for example to H.264";
  }
  std::string reason = check_size(coded.width, coded.height, max_pixels);
  if (!reason.empty()) return reason;
  decoder_.reset(avcodec_alloc_context3(codec));
  if (!decoder_ || avcodec_parameters_to_context(decoder_.get(), &coded) < 0) {
    return "no memory";
  }
  // A header in the data may have another size; decoders add borders.
  constexpr int64_t kBorder = 512;
  decoder_->max_pixels =
      max_pixels + kBorder * (coded.width + coded.height + kBorder);
  decoder_->thread_count = 1;
  decoder_->pkt_timebase = stream_->time_base;
  if (const int error = avcodec_open2(decoder_.get(), codec, nullptr);
      error < 0) {
    return "its decoder does not start (" + ffmpeg_error(error) + ")";
  }
  format_.width = coded.width;
  format_.height = coded.height;
  format_.quarter_turns = quarter_turns(*stream_);
  format_.pictures = stream_->nb_frames;
  const AVRational rate =
      av_guess_frame_rate(container_.get(), stream_, nullptr);
  if (rate.num > 0 && rate.den > 0) {
    av_reduce(&format_.rate, &format_.rate_denominator, rate.num, rate.den,
              kMostRate);
  }
  rgb_ = picture_frame(format_.width, format_.height, AV_PIX_FMT_RGB24);
  return rgb_ ? "" : "no memory";
}

void Reader::feed() {
  while (true) {
    const int error = av_read_frame(container_.get(), packet_.get());
    if (error < 0) {
      at_end_ = true;
      if (error != AVERROR_EOF) {
        end_error_ = "cannot be read further (" + ffmpeg_error(error) + ")";
      }
      avcodec_send_packet(decoder_.get(), nullptr);
      return;
    }
    const bool is_ours = packet_->stream_index == stream_->index;
    if (is_ours && (packet_->flags & AV_PKT_FLAG_CORRUPT) != 0) ++damaged_;
    if (is_ours && avcodec_send_packet(decoder_.get(), packet_.get()) < 0) {
      ++damaged_;
    }
    av_packet_unref(packet_.get());
    if (is_ours) return;
  }
}

bool Reader::decode() {
  for (int64_t faults = 0; faults < kMostFaultsInARow;) {
    const int error = avcodec_receive_frame(decoder_.get(), frame_.get());
    if (error == 0) return true;
    if (error == AVERROR_EOF) return false;
    if (error != AVERROR(EAGAIN)) {
      ++damaged_;
      ++faults;
      continue;
    }
    if (at_end_) return false;
    const int64_t before = damaged_;
    feed();
    faults += damaged_ - before;
  }
  end_error_ = "is nothing but damage from here on";
  return false;
}

bool Reader::next(uint8_t* rgb) {
  if (!decode()) return false;
  if (frame_->width != format_.width || frame_->height != format_.height) {
    end_error_ =
        "changes to pictures of " + size_text(frame_->width, frame_->height);
    return false;
  }
  ++pictures_;
  if (frame_->decode_error_flags != 0) ++damaged_;
  if (rgb == nullptr) return true;
  if (!scaler_.convert(*frame_, *rgb_)) {
    end_error_ = "has pictures of a kind that no colours are made of";
    return false;
  }
  copy_rows(*rgb_, rgb);
  return true;
}

std::string Reader::fault() const {
  std::string text;
  const auto add = [&](const std::string& what) {
    text += (text.empty() ? "" : "; ") + what;
  };
  if (!end_error_.empty()) {
    add(cat("after ", pictures_, " pictures it ", end_error_));
  } else if (pictures_ + std::max<int64_t>(2, format_.pictures / 100) <
             format_.pictures) {
    add(cat("it ends after ", pictures_, " of ", format_.pictures,
            " pictures"));
  }
  if (damaged_ > 0) {
    add(cat(damaged_, " damaged, taken as far as they go"));
  }
  return text;
}

}  // namespace

std::unique_ptr<VideoReader> open_video(const std::string& file,
                                        int64_t max_pixels,
                                        std::string& reason) {
  auto reader = std::make_unique<Reader>();
  reason = reader->open(file, max_pixels);
  if (!reason.empty()) return nullptr;
  return reader;
}

}  // namespace headroom::video
