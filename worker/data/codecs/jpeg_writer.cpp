#include "worker/data/codecs/jpeg_writer.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it first
#include <cstdlib>

#include <jpeglib.h>

#include "parallel/base/check.h"

namespace headroom::codecs {
namespace {

struct JpegWriter {
  jpeg_compress_struct info{};
  jpeg_error_mgr error{};
  jmp_buf jump;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  ~JpegWriter() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

// libjpeg must not be thrown through; no object with a destructor in here.
bool guarded_compress(JpegWriter& writer, const cv::Mat& pixels, int quality) {
  if (setjmp(writer.jump) != 0) return false;
  jpeg_create_compress(&writer.info);
  jpeg_mem_dest(&writer.info, &writer.bytes, &writer.size);
  writer.info.image_width = static_cast<JDIMENSION>(pixels.cols);
  writer.info.image_height = static_cast<JDIMENSION>(pixels.rows);
  writer.info.input_components = 3;
  writer.info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&writer.info);
  jpeg_set_quality(&writer.info, quality, TRUE);
  jpeg_start_compress(&writer.info, TRUE);
  while (writer.info.next_scanline < writer.info.image_height) {
    auto* row = const_cast<JSAMPLE*>(
        pixels.ptr(static_cast<int>(writer.info.next_scanline)));
    jpeg_write_scanlines(&writer.info, &row, 1);
  }
  jpeg_finish_compress(&writer.info);
  return true;
}

}  // namespace

std::string encode_jpeg(const cv::Mat& pixels, int quality) {
  JpegWriter writer;
  writer.info.err = jpeg_std_error(&writer.error);
  writer.info.client_data = &writer;
  writer.error.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<JpegWriter*>(info->client_data)->jump, 1);
  };
  HEADROOM_CHECK(guarded_compress(writer, pixels, quality),
                 "libjpeg refused a picture");
  return {reinterpret_cast<const char*>(writer.bytes), writer.size};
}

}  // namespace headroom::codecs
