#include "tests/worker/data/encoders.h"

#include <cstdlib>

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include <cstring>
#include <opencv2/core.hpp>
#include <vector>

#include "tests/worker/data/data_files.h"

namespace headroom {
namespace {

// A TIFF structure whose only entry is the orientation.
std::string exif_with(int orientation) {
  std::string exif("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18);
  exif.push_back(static_cast<char>(orientation));
  return exif + std::string(7, '\0');
}

void append(png_structp png, png_bytep data, size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))
      ->append(reinterpret_cast<const char*>(data), size);
}

// A picture with `components` samples per pixel, derived from `rgb`.
cv::Mat samples_of(const cv::Mat& rgb, int components) {
  cv::Mat samples(rgb.rows, rgb.cols, CV_8UC(components));
  for (int y = 0; y < rgb.rows; ++y) {
    for (int x = 0; x < rgb.cols; ++x) {
      for (int c = 0; c < components; ++c) {
        samples.ptr(y)[x * components + c] = rgb.ptr(y)[3 * x + c % 3];
      }
    }
  }
  return samples;
}

}  // namespace

std::string encode_jpeg(const cv::Mat& rgb, const JpegForm& form) {
  const cv::Mat samples = samples_of(rgb, form.components);
  jpeg_compress_struct info{};
  jpeg_error_mgr error{};
  info.err = jpeg_std_error(&error);  // an error ends the test program
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = static_cast<JDIMENSION>(rgb.cols);
  info.image_height = static_cast<JDIMENSION>(rgb.rows);
  info.input_components = form.components;
  info.in_color_space = form.components == 1   ? JCS_GRAYSCALE
                        : form.components == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (form.components == 3) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans = {{3, {0, 1, 2}, 0, 0, 0, 0}};
  for (int k = 1; k <= form.scans - 1; ++k) {  // one coefficient each
    scans.push_back({1, {0}, k, k, 0, 0});
  }
  if (form.scans > 0) {
    info.scan_info = scans.data();
    info.num_scans = form.scans;
  }
  info.arith_code = form.arithmetic ? TRUE : FALSE;
  info.restart_in_rows = static_cast<int>(form.restart_rows);
  jpeg_start_compress(&info, TRUE);
  if (form.orientation != 1) {
    const std::string exif =
        std::string("Exif\0\0", 6) + exif_with(form.orientation);
    jpeg_write_marker(&info, JPEG_APP0 + 1,
                      reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  while (info.next_scanline < info.image_height) {
    auto* row =
        const_cast<JSAMPLE*>(samples.ptr(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(data), size);
  std::free(data);
  return bytes;
}

std::string encode_png(const cv::Mat& rgb, const PngForm& form) {
  const int channels = form.has_alpha ? 4 : 3;
  const cv::Mat samples = samples_of(rgb, channels);
  std::string bytes;
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(rgb.cols),
               static_cast<png_uint_32>(rgb.rows), 8,
               form.has_alpha ? PNG_COLOR_TYPE_RGBA : PNG_COLOR_TYPE_RGB,
               form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::string exif = exif_with(form.orientation);
  if (form.orientation != 1) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()),
                   reinterpret_cast<png_bytep>(exif.data()));
  }
  std::vector<png_bytep> rows;
  for (int y = 0; y < rgb.rows; ++y) {
    rows.push_back(const_cast<png_bytep>(samples.ptr(y)));
  }
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string encode_webp(const cv::Mat& rgb, bool lossless) {
  uint8_t* data = nullptr;
  const auto stride = static_cast<int>(rgb.step);
  const size_t size =
      lossless
          ? WebPEncodeLosslessRGB(rgb.data, rgb.cols, rgb.rows, stride, &data)
          : WebPEncodeRGB(rgb.data, rgb.cols, rgb.rows, stride, 75, &data);
  std::string bytes(reinterpret_cast<char*>(data), size);
  WebPFree(data);
  return bytes;
}

void write_tiff(const std::filesystem::path& file, const cv::Mat& pixels,
                const TiffForm& form) {
  constexpr int kTile = 32;
  const int bands = pixels.channels();
  const bool is_ycbcr = form.photometric == PHOTOMETRIC_YCBCR;
  const int photometric = form.photometric != 0 ? form.photometric
                          : bands == 3          ? PHOTOMETRIC_RGB
                                                : PHOTOMETRIC_MINISBLACK;
  const char* const fresh = form.big ? "w8" : "w";
  TIFF* tiff = TIFFOpen(file.c_str(), form.appended ? "a" : fresh);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, pixels.cols);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, pixels.rows);
  TIFFSetField(tiff, TIFFTAG_SUBFILETYPE, form.kind);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, bands);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE,
               static_cast<int>(8 * pixels.elemSize1()));
  TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, form.format);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, photometric);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG,
               form.planar ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, form.compression);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, form.orientation);
  if (form.extra != EXTRASAMPLE_UNSPECIFIED) {
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &form.extra);
  }
  if (form.tiled) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, kTile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, kTile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, is_ycbcr ? 16 : 7);
  }
  if (is_ycbcr) {
    TIFFSetField(tiff, TIFFTAG_YCBCRSUBSAMPLING, 2, 2);
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
  for (int plane = 0; plane < (form.planar ? bands : 1); ++plane) {
    cv::Mat stored = pixels;
    if (form.planar) cv::extractChannel(pixels, stored, plane);
    const auto sample = static_cast<uint16_t>(plane);
    if (!form.tiled) {
      for (int y = 0; y < stored.rows; ++y) {
        cv::Mat row = stored.row(y).clone();
        TIFFWriteScanline(tiff, row.data, static_cast<uint32_t>(y), sample);
      }
      continue;
    }
    for (int y = 0; y < stored.rows; y += kTile) {
      for (int x = 0; x < stored.cols; x += kTile) {
        cv::Mat tile(kTile, kTile, stored.type());
        std::memset(tile.data, 7, tile.total() * tile.elemSize());
        const cv::Rect part =
            cv::Rect(x, y, kTile, kTile) & cv::Rect({}, stored.size());
        stored(part).copyTo(tile(cv::Rect({}, part.size())));
        TIFFWriteTile(tiff, tile.data, static_cast<uint32_t>(x),
                      static_cast<uint32_t>(y), 0, sample);
      }
    }
  }
  TIFFClose(tiff);
}

std::string encode_tiff(const cv::Mat& pixels, const TiffForm& form) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "made.tif";
  write_tiff(file, pixels, form);
  return read_bytes(file);
}

std::map<std::string, JpegForm> jpeg_forms() {
  std::map<std::string, JpegForm> forms;
  for (const auto& [across, down] : std::vector<std::pair<int, int>>{
           {1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}}) {
    for (const int components : {1, 3, 4}) {
      for (const std::string coding :
           {"baseline", "progressive", "arithmetic", "restarts"}) {
        JpegForm form;
        form.across = across;
        form.down = down;
        form.components = components;
        form.progressive = coding == "progressive";
        form.arithmetic = coding == "arithmetic";
        form.restart_rows = coding == "restarts" ? 1U + across % 2U : 0U;
        forms[std::to_string(across) + " x " + std::to_string(down) + ", " +
              std::to_string(components) + " components, " + coding] = form;
      }
    }
  }
  return forms;
}

std::map<std::string, std::string> encodings(const cv::Mat& rgb) {
  std::map<std::string, std::string> files;
  files["jpeg"] = encode_jpeg(rgb, {});
  files["progressive jpeg"] = encode_jpeg(rgb, {.progressive = true});
  files["jpeg with restarts"] = encode_jpeg(rgb, {.restart_rows = 1});
  files["png"] = encode_png(rgb);
  files["interlaced png"] = encode_png(rgb, {.interlaced = true});
  files["png with alpha"] = encode_png(rgb, {.has_alpha = true});
  files["bmp"] = encode_bmp(rgb);
  files["webp"] = encode_webp(rgb);
  files["lossy webp"] = encode_webp(rgb, false);
  for (const uint16_t compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE}) {
    for (const bool tiled : {false, true}) {
      const TiffForm form{
          .compression = compression, .tiled = tiled, .big = tiled};
      files["tiff " + std::to_string(compression) + (tiled ? " tiled" : "")] =
          encode_tiff(rgb, form);
    }
  }
  files["tiff of jpeg"] = encode_tiff(
      rgb, {.compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR});
  return files;
}

cv::Mat times_257(const cv::Mat& pixels) {
  cv::Mat wide;
  pixels.convertTo(wide, CV_16U, 257);
  return wide;
}

cv::Mat test_bands(int height, int width, int bands, uint64_t seed) {
  cv::Mat result(height, width, CV_8UC(bands));
  for (int band = 0; band < bands; ++band) {
    const cv::Mat rgb =
        test_picture(height, width, seed + static_cast<uint64_t>(band) / 3);
    const int pair[] = {band % 3, band};
    cv::mixChannels(&rgb, 1, &result, 1, pair, 1);
  }
  return result;
}

}  // namespace headroom
