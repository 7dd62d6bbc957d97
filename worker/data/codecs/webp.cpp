// WebP through libwebp. Of an animation, the first frame is read, on a black
// background.
#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <vector>

#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

struct Container {
  std::vector<uint8_t> bytes;
  std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer;
  ImageHeader header;
};

Container open_container(ImageFile& file, const ImageLimits& limits) {
  Container container;
  container.bytes = file.read_all();
  const WebPData data{container.bytes.data(), container.bytes.size()};
  container.demuxer.reset(WebPDemux(&data));
  if (!container.demuxer) {
    throw ImageRefusal("damaged WebP: truncated or not well formed");
  }
  WebPDemuxer* demuxer = container.demuxer.get();
  container.header.width = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
  container.header.height = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT);
  check_pixels(container.header.width, container.header.height, limits);
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    container.header.orientation =
        exif_orientation({chunk.chunk.bytes, chunk.chunk.size});
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return container;
}

void decode_frame(const WebPIterator& frame, cv::Mat& canvas) {
  if (frame.x_offset + frame.width > canvas.cols ||
      frame.y_offset + frame.height > canvas.rows) {
    throw ImageRefusal("damaged WebP: a frame leaves its canvas");
  }
  uint8_t* target = canvas.ptr<uint8_t>(frame.y_offset) + 3 * frame.x_offset;
  const size_t room = canvas.step * (frame.height - 1) + 3 * frame.width;
  if (WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, target, room,
                        static_cast<int>(canvas.step)) == nullptr) {
    throw ImageRefusal("damaged WebP: corrupt pixel data");
  }
}

bool matches(std::span<const uint8_t> head) {
  return head.size() >= 16 && std::memcmp(head.data(), "RIFF", 4) == 0 &&
         std::memcmp(head.data() + 8, "WEBP", 4) == 0;
}

ImageHeader read_header(ImageFile& file, const ImageLimits& limits) {
  return open_container(file, limits).header;
}

// Decodes all rows, whichever are wanted. If libwebp crops, it stops after the
// last row of the crop and does not detect damage after it, and the colours
// along the cut differ from those of the whole picture.
RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows) {
  const Container container = open_container(file, limits);
  RawImage image;
  image.header = container.header;
  image.kept = {0, container.header.height};
  WebPIterator frame;
  if (WebPDemuxGetFrame(container.demuxer.get(), 1, &frame) == 0) {
    throw ImageRefusal("damaged WebP: no picture in it");
  }
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)>
      release(&frame, WebPDemuxReleaseIterator);
  image.pixels =
      cv::Mat::zeros(static_cast<int>(container.header.height),
                     static_cast<int>(container.header.width), CV_8UC3);
  decode_frame(frame, image.pixels);
  return image;
}

std::unique_ptr<ScanlineReader> open_rows(ImageFile& file,
                                          const ImageLimits& limits) {
  check_held_file(file.size(), limits);
  return std::make_unique<WholeRows>(
      read_header(file, limits),
      [&file, limits] { return decode(file, limits, kAllRows); });
}

// The demuxer has already read the container to its end.
bool ends_well(ImageFile&) { return true; }

}  // namespace

const Codec kWebpCodec{"WebP", matches,   read_header,
                       decode, ends_well, open_rows};

}  // namespace headroom::codecs
