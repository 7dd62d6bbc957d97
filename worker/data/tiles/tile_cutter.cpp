#include "worker/data/tiles/tile_cutter.h"

#include <algorithm>
#include <cstring>
#include <opencv2/imgproc.hpp>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "worker/data/codecs/codec.h"
#include "worker/data/codecs/exif.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/codecs/scanline_reader.h"

namespace headroom::tiles {
namespace {

// The part of the picture in memory: rows [begin_, end_) as stored.
class Band {
 public:
  Band(codecs::ScanlineReader& reader, int64_t height)
      : reader_(reader),
        pixels_(static_cast<int>(height),
                static_cast<int>(reader.header().width), reader.type()) {}

  // REQUIRES: `rows` begins no earlier than in the last call, and has at most
  // as many rows as the band.
  void move_to(codecs::PixelRows rows) {
    if (rows.begin >= end_) {
      reader_.skip(rows.begin - end_);
      begin_ = end_ = rows.begin;
    }
    keep_from(rows.begin);
    if (rows.end <= end_) return;
    cv::Mat room = pixels_.rowRange(static_cast<int>(end_ - begin_),
                                    static_cast<int>(rows.end - begin_));
    reader_.read(room);
    end_ = rows.end;
  }

  cv::Mat at(const TileRect& rect) const {
    return pixels_(
        cv::Rect(static_cast<int>(rect.x), static_cast<int>(rect.y - begin_),
                 static_cast<int>(rect.width), static_cast<int>(rect.height)));
  }

  void finish() {
    reader_.skip(reader_.header().height - end_);
    reader_.finish();
  }

 private:
  void keep_from(int64_t row) {
    if (row == begin_) return;
    const auto passed = static_cast<int>(row - begin_);
    const auto kept = static_cast<size_t>(end_ - row);
    std::memmove(pixels_.data, pixels_.ptr(passed), kept * pixels_.step);
    begin_ = row;
  }

  codecs::ScanlineReader& reader_;
  cv::Mat pixels_;
  int64_t begin_ = 0, end_ = 0;
};

bool lies_in(const TileRect& rect, codecs::ImageSize size) {
  return rect.y >= 0 && rect.x >= 0 && rect.y + rect.height <= size.height &&
         rect.x + rect.width <= size.width;
}

struct StoredTile {
  TileRect rect;
  size_t index = 0;
};

void cut_stored(codecs::ScanlineReader& reader, std::vector<StoredTile> tiles,
                const codecs::ImageLimits& limits,
                const std::function<void(size_t, const cv::Mat&)>& take) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const StoredTile& a, const StoredTile& b) {
                     return a.rect.y < b.rect.y;
                   });
  int64_t height = 1;
  for (const StoredTile& tile : tiles) {
    height = std::max(height, tile.rect.height);
  }
  codecs::check_samples(reader.header().width, height, CV_MAT_CN(reader.type()),
                        limits);
  Band band(reader, height);
  const int orientation = reader.header().orientation;
  for (const StoredTile& tile : tiles) {
    band.move_to({tile.rect.y, tile.rect.y + tile.rect.height});
    const cv::Mat pixels = band.at(tile.rect);
    // upright() works in place, and the next tile may share these pixels.
    take(tile.index, orientation == 1
                         ? pixels
                         : codecs::upright(pixels.clone(), orientation));
  }
  band.finish();
}

}  // namespace

TileRect stored_rect(const TileRect& upright, codecs::ImageSize stored,
                     int orientation) {
  HEADROOM_CHECK(orientation >= 1 && orientation <= 8, "1 to 8");
  TileRect rect = upright;
  if (codecs::swaps_axes(orientation)) {
    rect = {upright.x, upright.y, upright.width, upright.height};
  }
  const bool from_bottom = orientation == 3 || orientation == 4 ||
                           orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 ||
                          orientation == 7 || orientation == 8;
  if (from_bottom) rect.y = stored.height - rect.y - rect.height;
  if (from_right) rect.x = stored.width - rect.x - rect.width;
  return rect;
}

codecs::ImageResult cut_window(const std::filesystem::path& file,
                               const TileRect& window,
                               const codecs::ImageLimits& limits) {
  codecs::ImageResult result;
  bool is_as_wanted = true;
  result.reason = codecs::read_image_rows(
      file, limits, [&](codecs::ScanlineReader& reader) {
        const codecs::ImageHeader& header = reader.header();
        const codecs::ImageSize stored{static_cast<int32_t>(header.height),
                                       static_cast<int32_t>(header.width)};
        result.size = codecs::swaps_axes(header.orientation)
                          ? codecs::ImageSize{stored.width, stored.height}
                          : stored;
        is_as_wanted = CV_MAT_TYPE(reader.type()) == limits.type() ||
                       CV_MAT_DEPTH(reader.type()) == CV_8U;
        if (!is_as_wanted || !lies_in(window, result.size)) return;
        const TileRect rect = stored_rect(window, stored, header.orientation);
        codecs::check_samples(header.width, rect.height,
                              CV_MAT_CN(reader.type()), limits);
        cv::Mat band(static_cast<int>(rect.height), stored.width,
                     reader.type());
        reader.pass(rect.y);
        reader.read(band);
        result.pixels = band.colRange(static_cast<int>(rect.x),
                                      static_cast<int>(rect.x + rect.width))
                            .clone();
        if (result.pixels.channels() == 1 && limits.bands == codecs::kColours) {
          cv::cvtColor(result.pixels, result.pixels, cv::COLOR_GRAY2RGB);
        }
        result.pixels =
            codecs::upright(std::move(result.pixels), header.orientation);
      });
  if (!result.ok() || is_as_wanted) return result;
  // The format's codec decides how 16 bits become 8, so let it decode the rows.
  result =
      codecs::decode_rows(file, {window.y, window.y + window.height}, limits);
  if (result.ok() && window.x + window.width <= result.size.width) {
    result.pixels = result.pixels
                        .colRange(static_cast<int>(window.x),
                                  static_cast<int>(window.x + window.width))
                        .clone();
  }
  return result;
}

std::string cut_tiles(const std::filesystem::path& file,
                      std::span<const TileRect> tiles,
                      const codecs::ImageLimits& limits,
                      const std::function<void(size_t, const cv::Mat&)>& take) {
  return codecs::read_image_rows(
      file, limits, [&](codecs::ScanlineReader& reader) {
        const codecs::ImageHeader& header = reader.header();
        const codecs::ImageSize stored{static_cast<int32_t>(header.height),
                                       static_cast<int32_t>(header.width)};
        std::vector<StoredTile> wanted;
        for (size_t i = 0; i < tiles.size(); ++i) {
          const TileRect rect =
              stored_rect(tiles[i], stored, header.orientation);
          if (!lies_in(rect, stored)) {
            throw codecs::ImageRefusal(kOtherSize);
          }
          wanted.push_back({rect, i});
        }
        cut_stored(reader, std::move(wanted), limits, take);
      });
}

}  // namespace headroom::tiles
