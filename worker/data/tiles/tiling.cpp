#include "worker/data/tiles/tiling.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/codecs/geo_tags.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/codecs/scanline_reader.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/label_reader.h"
#include "worker/data/labels/parallel_for.h"
#include "worker/data/tiles/tile_cutter.h"

namespace headroom::tiles {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct LargeImage {
  fs::path path;
  std::string stem;  // prefix of its tiles' names; unique in the split
  codecs::StreamedImage file;
  std::optional<codecs::GeoTags> place;  // nullopt if it is not a map
  labels::ImageLabels labels;
  TilePlan plan;
};

struct PlannedSplit {
  TiledSplit result;
  std::vector<LargeImage> images;
};

void refuse_unknown_class(const configs::DataConfig& config,
                          const LargeImage& image) {
  const auto& unknown = image.labels.labels.unknown_class;
  if (!unknown) return;
  throw Error(
      "tile",
      cat(image.labels.file, ":", unknown->line, " has class ",
          unknown->class_name, ", but names in ", config.file.string(), " has ",
          counted(static_cast<int64_t>(config.names.size()), "class")),
      "complete names, or correct the label", ExitCode::kData);
}

// Reads all bands of a file. Samples other than unsigned 8 or 16 bits are
// accepted only if data.yaml gives a range of values for them.
codecs::ImageLimits limits_of(const configs::DataConfig& config,
                              const TilingRequest& request) {
  codecs::ImageLimits limits = request.index.limits;
  limits.bands = codecs::kAnyBands;
  limits.as_stored = config.range.has_value();
  return limits;
}

PlannedSplit plan_split(const configs::DataConfig& config, labels::Split split,
                        const TilingRequest& request) {
  PlannedSplit planned;
  labels::DataReport& report = planned.result.report;
  report.split = labels::split_name(split);
  const labels::SplitImages sources =
      labels::open_split(config, split, request.index.single_cls, report);
  planned.images.resize(sources.images.size());
  std::set<std::string> taken;
  for (size_t i = 0; i < planned.images.size(); ++i) {
    LargeImage& image = planned.images[i];
    image.path = sources.images[i].path;
    image.stem = labels::unique_stem(image.path, taken);
  }
  parallel_for(
      static_cast<int64_t>(planned.images.size()), request.index.num_threads,
      [&](int64_t i) {
        LargeImage& image = planned.images[static_cast<size_t>(i)];
        image.file =
            codecs::inspect_streamed(image.path, limits_of(config, request));
        if (!image.file.ok()) return;
        const codecs::ImageSize size = image.file.size;
        image.place = codecs::read_geo_tags(image.path);
        image.labels = sources.images[static_cast<size_t>(i)].labels(size);
        if (image.labels.fault) return;
        image.plan = plan_tiles(size, image.labels.labels.boxes,
                                image.path.filename().string(), request.tiles);
      });
  for (LargeImage& image : planned.images) {
    refuse_unknown_class(config, image);
    // Map coordinates refer to stored pixels, so they do not fit turned tiles.
    if (!image.place || image.file.is_upright) continue;
    image.place.reset();
    report.notes.push_back(
        image.path.string() +
        ": its tiles have no coordinates, for its pixels are stored turned or "
        "mirrored");
  }
  return planned;
}

struct TileFile {
  std::string suffix, bytes;
};

TileFile tile_file(const LargeImage& image, const TileRect& rect,
                   const cv::Mat& pixels) {
  if (image.place) {
    const codecs::GeoTags place = image.place->moved(rect.y, rect.x);
    return {".tif", codecs::encode_tiff_bytes(pixels, &place)};
  }
  if (image.file.is_jpeg)
    return {".jpg", codecs::encode_jpeg(pixels, kTileJpegQuality)};
  const bool fits_png = pixels.depth() == CV_8U || pixels.depth() == CV_16U;
  if (fits_png &&
      (pixels.channels() == 1 || pixels.channels() == codecs::kColours)) {
    return {".png", codecs::encode_png_bytes(pixels)};
  }
  return {".tif", codecs::encode_tiff_bytes(pixels)};
}

// Returns why the image is refused, "" on success. Removes the tiles of a
// refused image.
std::string write_tiles(const configs::DataConfig& config,
                        const LargeImage& image, const std::string& split,
                        const NewFolder& folder, const TilingRequest& request) {
  if (image.plan.tiles.empty()) return "";
  std::vector<TileRect> rects;
  for (const PlannedTile& tile : image.plan.tiles) rects.push_back(tile.rect);
  std::vector<fs::path> written;
  const auto write = [&](const fs::path& file, const std::string& bytes) {
    folder.write(file, bytes);
    written.push_back(file);
  };
  std::string reason = cut_tiles(
      image.path, rects, limits_of(config, request),
      [&](size_t index, const cv::Mat& pixels) {
        if (request.stopped()) {
          throw Error("tile", "interrupted; nothing was written",
                      "start it again", ExitCode::kInterrupted);
        }
        const TileRect& rect = rects[index];
        const std::string name = cat(image.stem, "_", rect.y, "_", rect.x);
        const TileFile file = tile_file(image, rect, pixels);
        write(fs::path("images") / split / (name + file.suffix), file.bytes);
        write(fs::path("labels") / split / (name + ".txt"),
              labels::label_text(image.plan.tiles[index].boxes));
      });
  if (!reason.empty()) {
    for (const fs::path& file : written) folder.remove(file);
  }
  return reason;
}

// Adds an image to the report, with its tiles or, if it is refused, with the
// reason.
void add_to(TiledSplit& split, const LargeImage& image,
            const std::string& reason) {
  if (!labels::add_image(image.path.native(), reason, image.labels,
                         split.report)) {
    return;
  }
  if (image.file.has_alpha) ++split.images_with_alpha;
  split.in_grid += image.plan.in_grid;
  split.without_box += image.plan.without_box;
  split.lost_boxes += image.plan.lost_boxes;
  for (const PlannedTile& tile : image.plan.tiles) {
    ++split.tiles;
    if (tile.boxes.empty()) ++split.empty_tiles;
    split.boxes += static_cast<int64_t>(tile.boxes.size());
  }
}

void write_split(const configs::DataConfig& config, PlannedSplit& planned,
                 const NewFolder& folder, const TilingRequest& request) {
  const std::string& name = planned.result.report.split;
  folder.make(fs::path("images") / name);
  folder.make(fs::path("labels") / name);
  std::vector<std::string> reasons(planned.images.size());
  parallel_for(
      static_cast<int64_t>(reasons.size()), request.index.num_threads,
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        const LargeImage& image = planned.images[at];
        reasons[at] = image.file.ok()
                          ? write_tiles(config, image, name, folder, request)
                          : image.file.reason;
        if (request.index.image_done) {
          request.index.image_done(name, static_cast<int64_t>(reasons.size()));
        }
      });
  for (size_t i = 0; i < reasons.size(); ++i) {
    add_to(planned.result, planned.images[i], reasons[i]);
  }
}

// Throws if no tile of the split has a box, because training would refuse the
// split.
void refuse_without_box(const configs::DataConfig& config,
                        const TiledSplit& split) {
  if (split.boxes > 0) return;
  const labels::DataReport& report = split.report;
  std::string what = report.split + " of " + config.file.string() + " has " +
                     counted(report.images, "image") + " with " +
                     counted(report.boxes, "box") + ", and no tile shows one";
  if (!report.faults.empty()) {
    what += "; the first fault: " + labels::to_string(report.faults.front());
  }
  throw Error("tile", what,
              "see headroom verify, or give a larger --size or a smaller "
              "--min-visible",
              ExitCode::kData);
}

}  // namespace

std::vector<TiledSplit> tile_data(const configs::DataConfig& config,
                                  const TilingRequest& request) {
  NewFolder folder(request.output, "tile", "--output");
  std::vector<PlannedSplit> planned;
  for (const labels::Split split : labels::named_splits(config)) {
    planned.push_back(plan_split(config, split, request));
  }
  std::vector<TiledSplit> splits;
  std::vector<std::string> names;
  for (PlannedSplit& split : planned) {
    write_split(config, split, folder, request);
    names.push_back(split.result.report.split);
    // Published data sets often have test images without labels.
    if (names.back() != "test") refuse_without_box(config, split.result);
    splits.push_back(std::move(split.result));
  }
  const std::vector<std::string> classes =
      request.index.single_cls ? std::vector<std::string>{"item"}
                               : config.names;
  folder.write("data.yaml",
               labels::data_yaml_text(classes, names,
                                      configs::range_line(config.range)));
  folder.finish();
  return splits;
}

std::string tiling_text(const std::vector<TiledSplit>& splits) {
  std::string text;
  for (const TiledSplit& split : splits) {
    for (const std::string& line : split.report.lines(labels::kMaxDataFaults)) {
      text += line + "\n";
    }
    text +=
        cat(split.report.split, ": ", split.tiles, " of ",
            counted(split.in_grid, "tile"), " written, with ",
            counted(split.boxes, "box"), "; ", split.empty_tiles, " of the ",
            counted(split.without_box, "tile"), " without a box among them\n");
    if (split.images_with_alpha > 0) {
      text += split.report.split + ": of " +
              counted(split.images_with_alpha, "image") +
              " the sample that the file calls alpha is left out: where it is "
              "a band of a model's, write the file without that mark "
              "(gdal_translate -co ALPHA=NO) and tile it again\n";
    }
    if (split.lost_boxes > 0) {
      text += cat(split.report.split, ": none of the tiles shows enough of ",
                  counted(split.lost_boxes, "box"),
                  ": give a larger --size or a smaller --min-visible\n");
    }
  }
  return text;
}

std::string tiling_json(const std::vector<TiledSplit>& splits,
                        const fs::path& output) {
  Json json;
  json["data"] = (output / "data.yaml").string();
  json["splits"] = Json::array();
  for (const TiledSplit& split : splits) {
    Json entry = {{"split", split.report.split},
                  {"images", split.report.images},
                  {"image_boxes", split.report.boxes},
                  {"tiles_in_images", split.in_grid},
                  {"tiles_without_box", split.without_box},
                  {"tiles", split.tiles},
                  {"empty_tiles", split.empty_tiles},
                  {"boxes", split.boxes},
                  {"lost_boxes", split.lost_boxes},
                  {"images_with_alpha", split.images_with_alpha}};
    entry["faults"] = Json::array();
    for (const labels::DataFault& fault : split.report.faults) {
      entry["faults"].push_back(labels::to_string(fault));
    }
    json["splits"].push_back(std::move(entry));
  }
  // File names may be in any encoding.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::tiles
