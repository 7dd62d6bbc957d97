// JPEG through libjpeg-turbo.
//
// The library reports errors through a callback that must not return and,
// because the library is C, must not throw. The callback therefore longjmps to
// the guarded_ function that called the library. These functions hold no object
// with a destructor.
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it first

#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::codecs {
namespace {

// An ordinary encoder writes 2 scans plus 4 for each component.
constexpr int64_t kOrdinaryScans = 20;
// The limit of scans x pixels for a file with more than kOrdinaryScans scans:
// each scan costs a pass over all pixels, even if it has hardly any bytes.
constexpr int64_t kScannedPixels = 200'000'000;

struct Reader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr error{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message{};
  std::array<JOCTET, 1 << 16> buffer;
  ImageFile* file = nullptr;
  int64_t offset = 0;  // file position of the next read into `buffer`
  int max_scans = 0;
  bool in_header = true;

  ~Reader() { jpeg_destroy_decompress(&info); }
};

Reader& reader_of(j_common_ptr info) {
  return *static_cast<Reader*>(info->client_data);
}
Reader& reader_of(j_decompress_ptr info) {
  return *static_cast<Reader*>(info->client_data);
}

[[noreturn]] void on_error(j_common_ptr info) {
  Reader& reader = reader_of(info);
  info->err->format_message(info, reader.message.data());
  std::longjmp(reader.jump, 1);
}

// Whether a warning concerns only headers, so that the pixels are still
// correct.
bool is_harmless(int code, bool in_header) {
  return (code == JWRN_EXTRANEOUS_DATA && in_header) ||
         code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
         code == JWRN_NOT_SEQUENTIAL;
}

// After damaged data the library would continue and fill the rest with gray.
// The first warning is enough to refuse the file, so decoding stops there.
void on_message(j_common_ptr info, int level) {
  if (level < 0 &&
      !is_harmless(info->err->msg_code, reader_of(info).in_header)) {
    on_error(info);
  }
}

void ignore_message(j_common_ptr) {}

void start_source(j_decompress_ptr) {}

boolean fill_buffer(j_decompress_ptr info) {
  Reader& reader = reader_of(info);
  const size_t got = reader.file->read_at(reader.offset, reader.buffer);
  if (got == 0) ERREXIT(info, JERR_INPUT_EOF);
  reader.offset += static_cast<int64_t>(got);
  reader.source.next_input_byte = reader.buffer.data();
  reader.source.bytes_in_buffer = got;
  return TRUE;
}

void skip_bytes(j_decompress_ptr info, long count) {
  Reader& reader = reader_of(info);
  if (count <= 0) return;
  const auto left = static_cast<long>(reader.source.bytes_in_buffer);
  if (count <= left) {
    reader.source.next_input_byte += count;
    reader.source.bytes_in_buffer -= static_cast<size_t>(count);
    return;
  }
  reader.offset += count - left;
  reader.source.bytes_in_buffer = 0;
}

void stop_source(j_decompress_ptr) {}

void check_scans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  Reader& reader = reader_of(info);
  const int64_t pixels =
      int64_t{decompress->image_width} * decompress->image_height;
  const auto max_scans = static_cast<int>(std::min<int64_t>(
      reader.max_scans, std::max(kOrdinaryScans, kScannedPixels / pixels)));
  if (decompress->input_scan_number <= max_scans) return;
  std::snprintf(reader.message.data(), reader.message.size(),
                "more than %d scans", max_scans);
  std::longjmp(reader.jump, 1);
}

bool guarded_header(Reader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&reader.info);
  reader.info.src = &reader.source;
  reader.info.progress = &reader.progress;
  jpeg_save_markers(&reader.info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&reader.info, TRUE);
  return true;
}

// Each ink reduces the light that the paper reflects; Adobe's programs store
// inks inverted. OpenCV, and therefore YOLOv5, uses the same integer formula.
void cmyk_to_rgb(const JSAMPLE* cmyk, uint8_t* rgb, JDIMENSION width,
                 bool inverted) {
  for (JDIMENSION x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int black = inverted ? cmyk[3] : 255 - cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? 255 - cmyk[c] : cmyk[c];
      rgb[c] = static_cast<uint8_t>(black - (ink * black >> 8));
    }
  }
}

bool is_cmyk(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

bool guarded_start(Reader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  reader.info.out_color_space = is_cmyk(reader.info) ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&reader.info);
  return true;
}

// The memory that rows are written to, and space for one row in the library's
// colours.
struct Target {
  uint8_t* pixels = nullptr;
  size_t stride = 0;
  JSAMPLE* scratch = nullptr;
};

bool guarded_read(Reader& reader, const Target& target, JDIMENSION rows) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_decompress_struct* info = &reader.info;
  const bool cmyk = info->out_color_space == JCS_CMYK;
  const JDIMENSION first = info->output_scanline;
  while (info->output_scanline - first < rows) {
    uint8_t* row =
        target.pixels + (info->output_scanline - first) * target.stride;
    JSAMPROW line = cmyk ? target.scratch : row;
    if (jpeg_read_scanlines(info, &line, 1) == 1 && cmyk) {
      cmyk_to_rgb(line, row, info->output_width,
                  info->saw_Adobe_marker != FALSE);
    }
  }
  return true;
}

// The entropy-coded data of skipped rows is still read, so that damage is
// found. The last row of the picture is decoded, not skipped: after skipping it
// the library would assume the end of the file and stop checking.
bool guarded_skip(Reader& reader, JSAMPLE* scratch, JDIMENSION rows) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_decompress_struct* info = &reader.info;
  const JDIMENSION target = info->output_scanline + rows;
  const JDIMENSION last = info->output_height - 1;
  const JDIMENSION skipped = target < last ? target : last;
  while (info->output_scanline < skipped) {
    jpeg_skip_scanlines(info, skipped - info->output_scanline);
  }
  while (info->output_scanline < target) {
    JSAMPROW line = scratch;
    jpeg_read_scanlines(info, &line, 1);
  }
  return true;
}

// Reads up to the end marker. Unread data before it means that the file is
// damaged.
bool guarded_finish(Reader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_finish_decompress(&reader.info);
  return true;
}

[[noreturn]] void refuse(const Reader& reader) {
  throw ImageRefusal(std::string("damaged JPEG: ") + reader.message.data());
}

std::unique_ptr<Reader> open_reader(ImageFile& file,
                                    const ImageLimits& limits) {
  auto reader = std::make_unique<Reader>();
  reader->file = &file;
  reader->max_scans = limits.max_jpeg_scans;
  reader->info.err = jpeg_std_error(&reader->error);
  reader->info.client_data = reader.get();
  reader->error.error_exit = on_error;
  reader->error.emit_message = on_message;
  reader->error.output_message = ignore_message;
  reader->source.init_source = start_source;
  reader->source.fill_input_buffer = fill_buffer;
  reader->source.skip_input_data = skip_bytes;
  reader->source.resync_to_restart = jpeg_resync_to_restart;
  reader->source.term_source = stop_source;
  reader->progress.progress_monitor = check_scans;
  if (!guarded_header(*reader)) refuse(*reader);
  reader->in_header = false;
  check_pixels(reader->info.image_width, reader->info.image_height, limits);
  return reader;
}

ImageHeader header_of(const Reader& reader) {
  ImageHeader header;
  header.height = reader.info.image_height;
  header.width = reader.info.image_width;
  for (jpeg_saved_marker_ptr marker = reader.info.marker_list;
       marker != nullptr; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    if (data.size() > 6 && std::memcmp(data.data(), "Exif\0\0", 6) == 0) {
      header.orientation = exif_orientation(data);
      break;
    }
  }
  return header;
}

// Refuses a file that is too short for its pixels: Huffman coding uses at least
// one bit for each 8x8 block.
void check_length(const Reader& reader, int64_t file_bytes) {
  if (reader.info.arith_code != FALSE) return;
  int64_t blocks = 0;
  for (int c = 0; c < reader.info.num_components; ++c) {
    const jpeg_component_info& component = reader.info.comp_info[c];
    blocks += int64_t{component.width_in_blocks} * component.height_in_blocks;
  }
  if (blocks / 8 > file_bytes) {
    throw ImageRefusal(cat("truncated JPEG: ", file_bytes,
                           " bytes cannot hold ", blocks, " blocks of pixels"));
  }
}

bool matches(std::span<const uint8_t> head) {
  return head.size() >= 3 && head[0] == 0xFF && head[1] == 0xD8 &&
         head[2] == 0xFF;
}

ImageHeader read_header(ImageFile& file, const ImageLimits& limits) {
  const auto reader = open_reader(file, limits);
  check_length(*reader, file.size());
  return header_of(*reader);
}

class JpegRows : public ScanlineReader {
 public:
  explicit JpegRows(std::unique_ptr<Reader> reader)
      : ScanlineReader(header_of(*reader), CV_8UC3),
        reader_(std::move(reader)),
        scratch_(size_t{4} * reader_->info.image_width) {}

  void read(cv::Mat& rows) override {
    start();
    const Target target{rows.data, rows.step, scratch_.data()};
    if (!guarded_read(*reader_, target, static_cast<JDIMENSION>(rows.rows))) {
      refuse(*reader_);
    }
  }

  void skip(int64_t rows) override {
    start();
    if (!guarded_skip(*reader_, scratch_.data(),
                      static_cast<JDIMENSION>(rows))) {
      refuse(*reader_);
    }
  }

  void finish() override {
    if (!guarded_finish(*reader_)) refuse(*reader_);
  }

 private:
  // Called at the first wanted row and not earlier, because starting reads
  // progressive files to the end.
  void start() {
    if (!started_ && !guarded_start(*reader_)) refuse(*reader_);
    started_ = true;
  }

  std::unique_ptr<Reader> reader_;
  std::vector<JSAMPLE> scratch_;
  bool started_ = false;
};

RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows wanted) {
  auto reader = open_reader(file, limits);
  check_length(*reader, file.size());
  JpegRows rows(std::move(reader));
  RawImage image = allocate_rows(rows.header(), wanted);
  rows.skip(image.kept.begin);
  rows.read(image.pixels);
  rows.skip(rows.header().height - image.kept.end);
  rows.finish();
  return image;
}

std::unique_ptr<ScanlineReader> open_rows(ImageFile& file,
                                          const ImageLimits& limits) {
  auto reader = open_reader(file, streamed(limits));
  check_length(*reader, file.size());
  // If there are several scans, libjpeg holds all coefficients in memory, two
  // bytes each.
  if (jpeg_has_multiple_scans(&reader->info) != FALSE) {
    check_pixels(reader->info.image_width, reader->info.image_height, limits);
  }
  return std::make_unique<JpegRows>(std::move(reader));
}

bool ends_well(ImageFile& file) {
  std::array<uint8_t, 2> end{};
  file.read_at(file.size() - 2, end);
  return end[0] == 0xFF && end[1] == 0xD9;
}

}  // namespace

const Codec kJpegCodec{"JPEG", matches,   read_header,
                       decode, ends_well, open_rows};

}  // namespace headroom::codecs
