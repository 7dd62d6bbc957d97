// PNG through libpng.
//
// As in jpeg.cpp, errors longjmp to a guarded_ function, which holds no object
// with a destructor.
#include <png.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
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

// The highest compression ratio of Deflate (zlib's technical notes).
constexpr int64_t kMaxDeflateRatio = 1032;

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  jmp_buf jump;
  std::array<char, 256> message{};
  ImageFile* file = nullptr;
  int64_t offset = 0;

  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  Reader& reader = *static_cast<Reader*>(png_get_error_ptr(png));
  std::snprintf(reader.message.data(), reader.message.size(), "%s", text);
  std::longjmp(reader.jump, 1);
}

// Warnings are ignored: they concern ancillary chunks (profiles, times), and
// the pixel data has checksums of its own.
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep buffer, size_t count) {
  Reader& reader = *static_cast<Reader*>(png_get_io_ptr(png));
  if (reader.file->read_at(reader.offset, {buffer, count}) != count) {
    png_error(png, "the file ends early");
  }
  reader.offset += static_cast<int64_t>(count);
}

bool guarded_header(Reader& reader, const ImageLimits& limits) {
  if (setjmp(reader.jump) != 0) return false;
  png_set_read_fn(reader.png, &reader, read_bytes);
  // By default libpng refuses sides above one million with an unclear message.
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_cache_max(reader.png, 1000);
  png_set_chunk_malloc_max(reader.png,
                           static_cast<png_alloc_size_t>(std::min<int64_t>(
                               limits.max_file_bytes, int64_t{8} << 20)));
  png_read_info(reader.png, reader.info);
  return true;
}

// The memory that wanted rows are written to, and one scratch row for all
// others.
struct Rows {
  png_uint_32 begin = 0, end = 0;
  uint8_t* pixels = nullptr;  // points to row `begin`
  size_t stride = 0;
  uint8_t* scratch = nullptr;
  size_t row_bytes = 0;
};

// An interlaced picture arrives in seven passes, each of which fills in more
// pixels of the same row. Rows that are not kept share one scratch row; its
// content is never used.
bool guarded_pixels(Reader& reader, const Rows& rows) {
  if (setjmp(reader.jump) != 0) return false;
  png_structp png = reader.png;
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, reader.info);
  const png_uint_32 height = png_get_image_height(png, reader.info);
  if (png_get_rowbytes(png, reader.info) > rows.row_bytes) {
    png_error(png, "unexpected pixel format");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      const bool is_kept = y >= rows.begin && y < rows.end;
      png_read_row(
          png,
          is_kept ? rows.pixels + (y - rows.begin) * rows.stride : rows.scratch,
          nullptr);
    }
  }
  png_read_end(png, reader.info);
  return true;
}

[[noreturn]] void refuse(const Reader& reader) {
  throw ImageRefusal(std::string("damaged PNG: ") + reader.message.data());
}

void open_reader(Reader& reader, ImageFile& file, const ImageLimits& limits) {
  reader.file = &file;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error,
                                      on_warning);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw ImageRefusal("no memory for libpng");
  if (!guarded_header(reader, limits)) refuse(reader);
  const int64_t height = png_get_image_height(reader.png, reader.info);
  const int64_t width = png_get_image_width(reader.png, reader.info);
  check_pixels(width, height, limits);
  const auto row_bytes =
      static_cast<int64_t>(png_get_rowbytes(reader.png, reader.info));
  if (row_bytes * height / kMaxDeflateRatio > file.size()) {
    throw ImageRefusal(cat("truncated PNG: ", file.size(),
                           " bytes cannot hold ", width, " x ", height,
                           " pixels"));
  }
}

ImageHeader header_of(Reader& reader) {
  ImageHeader header;
  header.height = png_get_image_height(reader.png, reader.info);
  header.width = png_get_image_width(reader.png, reader.info);
  png_uint_32 exif_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &exif_bytes, &exif) != 0) {
    header.orientation = exif_orientation({exif, exif_bytes});
  }
  return header;
}

bool matches(std::span<const uint8_t> head) {
  return head.size() >= 8 && png_sig_cmp(head.data(), 0, 8) == 0;
}

ImageHeader read_header(ImageFile& file, const ImageLimits& limits) {
  Reader reader;
  open_reader(reader, file, limits);
  return header_of(reader);
}

RawImage decode(ImageFile& file, const ImageLimits& limits, PixelRows wanted) {
  Reader reader;
  open_reader(reader, file, limits);
  // The orientation is read before the pixels, as in read_header. An
  // orientation that follows the pixels in the file is ignored, because
  // read_header has reported the size without it.
  RawImage image = allocate_rows(header_of(reader), wanted);
  Rows rows;
  rows.row_bytes = size_t{3} * static_cast<size_t>(image.header.width);
  std::vector<uint8_t> scratch(rows.row_bytes);
  rows.begin = static_cast<png_uint_32>(image.kept.begin);
  rows.end = static_cast<png_uint_32>(image.kept.end);
  rows.pixels = image.pixels.data;
  rows.stride = image.pixels.step;
  rows.scratch = scratch.data();
  if (!guarded_pixels(reader, rows)) refuse(reader);
  return image;
}

// Prepares to read rows with all their bits. Sets `passes` to the number of
// times that each row is read.
bool guarded_start(Reader& reader, int& passes) {
  if (setjmp(reader.jump) != 0) return false;
  png_structp png = reader.png;
  png_set_expand(png);
  png_set_strip_alpha(png);
  if (std::endian::native == std::endian::little) png_set_swap(png);
  passes = png_set_interlace_handling(png);
  png_read_update_info(png, reader.info);
  return true;
}

bool guarded_read(Reader& reader, uint8_t* pixels, size_t stride, int rows) {
  if (setjmp(reader.jump) != 0) return false;
  for (int y = 0; y < rows; ++y) {
    png_read_row(reader.png, pixels + static_cast<size_t>(y) * stride, nullptr);
  }
  return true;
}

bool guarded_finish(Reader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  png_read_end(reader.png, reader.info);
  return true;
}

class PngRows : public ScanlineReader {
 public:
  PngRows(std::unique_ptr<Reader> reader, int type, int passes)
      : ScanlineReader(header_of(*reader), type),
        reader_(std::move(reader)),
        passes_(passes) {}

  void read(cv::Mat& rows) override {
    if (passes_ == 1) return read_rows(rows);
    if (whole_.empty()) read_passes();
    whole_.rowRange(next_, next_ + rows.rows).copyTo(rows);
    next_ += rows.rows;
  }

  void finish() override {
    if (!guarded_finish(*reader_)) refuse(*reader_);
  }

 private:
  void read_rows(cv::Mat& rows) {
    if (!guarded_read(*reader_, rows.data, rows.step, rows.rows)) {
      refuse(*reader_);
    }
  }
  void read_passes() {
    whole_ = cv::Mat::zeros(static_cast<int>(header().height),
                            static_cast<int>(header().width), type());
    for (int pass = 0; pass < passes_; ++pass) read_rows(whole_);
  }

  std::unique_ptr<Reader> reader_;
  int passes_;
  cv::Mat whole_;  // only for interlaced pictures: all pixels
  int next_ = 0;
};

std::unique_ptr<ScanlineReader> open_rows(ImageFile& file,
                                          const ImageLimits& limits) {
  auto reader = std::make_unique<Reader>();
  open_reader(*reader, file, streamed(limits));
  int passes = 1;
  if (!guarded_start(*reader, passes)) refuse(*reader);
  const ImageHeader header = header_of(*reader);
  if (passes > 1) check_pixels(header.width, header.height, limits);
  const int depth =
      png_get_bit_depth(reader->png, reader->info) == 16 ? CV_16U : CV_8U;
  const int type =
      CV_MAKETYPE(depth, png_get_channels(reader->png, reader->info));
  return std::make_unique<PngRows>(std::move(reader), type, passes);
}

bool ends_well(ImageFile& file) {
  constexpr std::array<uint8_t, 8> kEnd{'I',  'E',  'N',  'D',
                                        0xAE, 0x42, 0x60, 0x82};
  std::array<uint8_t, 8> end{};
  file.read_at(file.size() - 8, end);
  return end == kEnd;
}

}  // namespace

const Codec kPngCodec{"PNG",  matches,   read_header,
                      decode, ends_well, open_rows};

}  // namespace headroom::codecs
