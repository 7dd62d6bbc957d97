#include "worker/data/codecs/scanline_reader.h"
#include "parallel/base/text.h"

#include <algorithm>

namespace headroom::codecs {

void ScanlineReader::skip(int64_t rows) {
  constexpr int64_t kAtOnce = 16;
  cv::Mat passed(static_cast<int>(std::min(rows, kAtOnce)),
                 static_cast<int>(header_.width), type_);
  while (rows > 0) {
    const int64_t some = std::min(rows, kAtOnce);
    cv::Mat part = passed.rowRange(0, static_cast<int>(some));
    read(part);
    rows -= some;
  }
}

void WholeRows::read(cv::Mat& rows) {
  if (pixels_.empty()) pixels_ = decode_().pixels;
  pixels_.rowRange(next_, next_ + rows.rows).copyTo(rows);
  next_ += rows.rows;
}

ImageLimits streamed(ImageLimits limits) {
  limits.max_pixels = kMaxStreamedPixels;
  return limits;
}

void check_held_file(int64_t bytes, const ImageLimits& limits) {
  if (bytes <= limits.max_file_bytes) return;
  throw ImageRefusal(
      cat("a file of ", bytes,
          " bytes that has to be read whole is above the limit of ",
          limits.max_file_bytes));
}

}  // namespace headroom::codecs
