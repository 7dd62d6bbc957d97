#include "worker/data/augment.h"

#include <optional>
#include <utility>

#include "worker/data/affine.h"
#include "worker/data/copy_paste.h"
#include "worker/data/flip.h"
#include "worker/data/hsv.h"
#include "worker/data/letterbox.h"
#include "worker/data/mixup.h"
#include "worker/data/mosaic.h"
#include "worker/data/pixel_changes.h"
#include "worker/data/random.h"

namespace headroom {
namespace {

ImageSize size_of(int64_t height, int64_t width) {
  return {static_cast<int32_t>(height), static_cast<int32_t>(width)};
}

RandomStream stream_of(const SampleId& id,
                       RandomPurpose purpose = RandomPurpose::kAugmentation) {
  return {id.seed, static_cast<uint64_t>(id.epoch), id.stream(), purpose};
}

// What follows the geometry.
struct Finish {
  PixelChanges changes;
  HsvGains gains;
  bool upside_down = false;
  bool mirrored = false;
};

Finish draw_finish(const Hyperparameters& hyp, RandomStream& draws) {
  Finish finish;
  finish.changes = draw_pixel_changes(hyp, draws);
  finish.gains = draw_hsv_gains(hyp, draws);
  finish.upside_down = draws.uniform() < hyp.flipud;
  finish.mirrored = draws.uniform() < hyp.fliplr;
  return finish;
}

// Before the flips, of a sample of that height: what is kept of it, and what is
// made for that.
struct FinishedRows {
  PixelRows kept, made;
};

FinishedRows rows_before(const Finish& finish, PixelRows rows, int64_t height) {
  if (finish.upside_down) rows = mirror_rows(rows, height);
  return {rows, finish.changes.needs_all_rows() ? PixelRows{0, height} : rows};
}

void finish_training(BoxedImage image, ImageSize size, const Finish& finish,
                     const FinishedRows& rows, bool has_colours,
                     NetworkSample& result) {
  result.boxes =
      normalize_boxes(std::move(image.boxes), size.width, size.height);
  result.pixels = image.pixels;
  change_pixels(result.pixels, finish.changes, has_colours);
  if (rows.kept != rows.made) {
    result.pixels = result.pixels
                        .rowRange(static_cast<int>(rows.kept.begin),
                                  static_cast<int>(rows.kept.end))
                        .clone();
  }
  if (has_colours) jitter_hsv(result.pixels, finish.gains);
  if (finish.upside_down) flip_up_down(result.pixels, result.boxes);
  if (finish.mirrored) flip_left_right(result.pixels, result.boxes);
}

// Rows `rows` of the sample letterboxed, then warped; the boxes are yet to be
// warped. Fills all of `result` but its pixels and boxes.
BoxedImage letterboxed(int64_t sample, ImageSize target, PixelRows rows,
                       bool enlarge, const Warp& warp, ImageSource& images,
                       NetworkSample& result) {
  const ImageSize loaded = images.loaded_size(sample);
  LetterboxOptions options;
  options.enlarge = enlarge;
  const Letterbox geometry =
      letterbox_geometry(loaded, target.height, target.width, options);
  PlacedPicture picture = placed_picture(geometry);
  const bool stays = is_identity(warp);
  // What is resized here is resized whole; and a whole image is remembered,
  // which some rows of it are not, however many.
  if (picture.size == loaded && rows.size() < target.height) {
    picture.held = stays ? picture.own_rows(rows)
                         : rows_to_warp(warp, target.width, rows, picture);
  }
  const bool is_resized = picture.size != loaded;
  const LoadedImage image = images.load(
      sample, is_resized ? PixelRows{0, loaded.height} : picture.held);
  const cv::Mat pixels =
      is_resized ? resize_to_letterbox(image.pixels, geometry) : image.pixels;

  if (!image.fault.empty()) result.faults.push_back(image.fault);
  result.source = image.source;
  result.ratio = geometry.ratio_y * loaded.height / image.source.height;
  result.pad_x = geometry.pad_x;
  result.pad_y = geometry.pad_y;
  const Placement placement{geometry.ratio_x * loaded.width,
                            geometry.ratio_y * loaded.height, geometry.pad_x,
                            geometry.pad_y};
  const int bands = images.bands();
  return {stays ? place_rows(pixels, picture, target.width, rows, bands)
                : warp_rows(pixels, picture, warp, target.width, rows, bands),
          place_boxes(image.labels, placement)};
}

// A mosaic and its way into the network's image.
struct WarpedMosaic {
  MosaicPlan plan;
  Warp warp;
};

// A sample that joins a mosaic: of the data set, or of the epoch's draws.
int64_t draw_partner(const SampleId& id, int64_t num_samples,
                     RandomStream& draws) {
  const int64_t drawn = draws.below(num_samples);
  return id.weights != nullptr ? id.weights->sample(id.epoch, drawn) : drawn;
}

WarpedMosaic draw_warped_mosaic(int64_t sample, const DrawPartner& partner,
                                ImageSize target, const Hyperparameters& hyp,
                                RandomStream& draws) {
  WarpedMosaic mosaic;
  mosaic.plan = draw_mosaic(sample, partner, target.height, target.width,
                            hyp.mosaic9, draws);
  mosaic.warp =
      draw_warp(hyp, {2 * target.height, 2 * target.width}, target, draws);
  return mosaic;
}

BoxedImage make_warped_mosaic(const WarpedMosaic& mosaic, ImageSize target,
                              PixelRows rows, double copy_paste,
                              RandomStream& paste_draws, ImageSource& images,
                              std::vector<std::string>& faults) {
  const ImageSize canvas{2 * target.height, 2 * target.width};
  const PixelRows touched =
      rows.size() == target.height
          ? PixelRows{0, canvas.height}
          : rows_to_warp(mosaic.warp, target.width, rows, canvas);
  const LoadImage load = [&](int64_t sample) {
    return images.load(sample, {0, images.loaded_size(sample).height});
  };
  Mosaic built = build_mosaic(mosaic.plan, target.height, target.width, touched,
                              load, faults);
  const auto pastes = draw_pastes(copy_paste, canvas.width, built.outlines,
                                  built.boxes, paste_draws);
  if (!pastes.empty()) paste_objects(built, pastes, canvas.width, touched);
  return {warp_tiles(built.tiles, mosaic.warp, target.width, rows, built.bands),
          warp_boxes(built.boxes, mosaic.warp, target)};
}

}  // namespace

NetworkSample make_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width, PixelRows rows,
                                 const Hyperparameters& hyp,
                                 ImageSource& images) {
  RandomStream draws = stream_of(id);
  if (draws.uniform() >= hyp.mosaic) {
    return make_rect_sample(id, height, width, rows, hyp, images);
  }
  const ImageSize target = size_of(height, width);
  // All draws come first: which rows are needed follows from them.
  const DrawPartner partner = [&] {
    return draw_partner(id, num_samples, draws);
  };
  const WarpedMosaic first =
      draw_warped_mosaic(id.sample, partner, target, hyp, draws);
  std::optional<WarpedMosaic> second;
  double ratio = 1;
  if (draws.uniform() < hyp.mixup) {
    second = draw_warped_mosaic(partner(), partner, target, hyp, draws);
    ratio = draw_mixup_ratio(draws);
  }
  const Finish finish = draw_finish(hyp, draws);
  const FinishedRows needed = rows_before(finish, rows, height);
  rows = needed.made;

  NetworkSample result;
  RandomStream paste_draws = stream_of(id, RandomPurpose::kCopyPaste);
  const auto make = [&](const WarpedMosaic& mosaic) {
    return make_warped_mosaic(mosaic, target, rows, hyp.copy_paste, paste_draws,
                              images, result.faults);
  };
  BoxedImage image = make(first);
  if (second) image = mix(image, make(*second), ratio);
  finish_training(std::move(image), target, finish, needed,
                  images.has_colours(), result);
  return result;
}

NetworkSample make_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, PixelRows rows,
                               const Hyperparameters& hyp,
                               ImageSource& images) {
  RandomStream draws = stream_of(id);
  draws.uniform();  // the mosaic's
  const ImageSize target = size_of(height, width);
  const Warp warp = draw_warp(hyp, target, target, draws);
  const Finish finish = draw_finish(hyp, draws);
  const FinishedRows needed = rows_before(finish, rows, height);
  NetworkSample result;
  BoxedImage image =
      letterboxed(id.sample, target, needed.made, true, warp, images, result);
  image.boxes = warp_boxes(image.boxes, warp, target);
  finish_training(std::move(image), target, finish, needed,
                  images.has_colours(), result);
  return result;
}

NetworkSample make_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, PixelRows rows,
                                     ImageSource& images) {
  NetworkSample result;
  BoxedImage image = letterboxed(sample, size_of(height, width), rows, false,
                                 Warp{}, images, result);
  result.boxes = normalize_boxes(std::move(image.boxes), width, height);
  result.pixels = image.pixels;
  return result;
}

}  // namespace headroom
