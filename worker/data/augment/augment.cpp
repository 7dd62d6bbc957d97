#include "worker/data/augment/augment.h"

#include <optional>
#include <utility>

#include "worker/data/augment/affine.h"
#include "worker/data/augment/copy_paste.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/augment/mosaic.h"
#include "worker/data/augment/pixel_changes.h"
#include "worker/data/sampling/random.h"

namespace headroom::augment {
namespace {

codecs::ImageSize size_of(int64_t height, int64_t width) {
  return {static_cast<int32_t>(height), static_cast<int32_t>(width)};
}

sampling::RandomStream stream_of(
    const SampleId& id,
    sampling::RandomPurpose purpose = sampling::RandomPurpose::kAugmentation) {
  return {id.seed, static_cast<uint64_t>(id.epoch), id.stream(), purpose};
}

// The drawn parameters of the steps that follow warp and mixup.
struct Finish {
  PixelChanges changes;
  HsvGains gains;
  bool upside_down = false;
  bool mirrored = false;
};

Finish draw_finish(const configs::Hyperparameters& hyp,
                   sampling::RandomStream& draws) {
  Finish finish;
  finish.changes = draw_pixel_changes(hyp, draws);
  finish.gains = draw_hsv_gains(hyp, draws);
  finish.upside_down = draws.uniform() < hyp.flipud;
  finish.mirrored = draws.uniform() < hyp.fliplr;
  return finish;
}

// Rows of a sample, counted before flipping: the rows that are kept, and the
// rows that have to be computed to get them.
struct FinishedRows {
  codecs::PixelRows kept, made;
};

FinishedRows rows_before(const Finish& finish, codecs::PixelRows rows,
                         int64_t height) {
  if (finish.upside_down) rows = codecs::mirror_rows(rows, height);
  return {rows, finish.changes.needs_all_rows() ? codecs::PixelRows{0, height}
                                                : rows};
}

// Fills in the boxes of the sample and the remaining fields of its recipe.
// `boxes` are all visible boxes in pixels of the sample.
void finish_plan(std::vector<labels::PixelBox> boxes, codecs::ImageSize size,
                 const Finish& finish, const FinishedRows& rows,
                 const ImageSource& images, PlannedSample& planned) {
  std::vector<labels::NormalizedBox>& moved = planned.sample.boxes;
  moved = labels::normalize_boxes(std::move(boxes), size.width, size.height);
  if (finish.upside_down) flip_up_down(moved);
  if (finish.mirrored) flip_left_right(moved);
  SampleRecipe& recipe = planned.recipe;
  recipe.width = size.width;
  recipe.type = images.type();
  recipe.has_colours = images.has_colours();
  recipe.made = rows.made;
  recipe.kept = rows.kept;
  recipe.changes = finish.changes;
  recipe.gains = finish.gains;
  recipe.upside_down = finish.upside_down;
  recipe.mirrored = finish.mirrored;
}

// The recipe of a picture, and the boxes on it.
struct PlannedPicture {
  PictureRecipe recipe;
  std::vector<labels::PixelBox> boxes;
};

// Plans rows `rows` of the letterboxed and warped sample. The returned boxes
// are not warped yet. Fills in `result` except for its pixels and boxes.
PlannedPicture letterboxed(int64_t sample, codecs::ImageSize target,
                           codecs::PixelRows rows, bool enlarge,
                           const Warp& warp, ImageSource& images,
                           NetworkSample& result) {
  const codecs::ImageSize loaded = images.loaded_size(sample);
  LetterboxOptions options;
  options.enlarge = enlarge;
  const Letterbox geometry =
      letterbox_geometry(loaded, target.height, target.width, options);
  PlacedPicture picture = placed_picture(geometry);
  // Images that are resized here are read whole. Images of which all rows are
  // needed are read whole too, because the store caches only whole images.
  if (picture.size == loaded && rows.size() < target.height) {
    picture.held = is_identity(warp)
                       ? picture.own_rows(rows)
                       : rows_to_warp(warp, target.width, rows, picture);
  }
  const bool is_resized = picture.size != loaded;
  const LoadedImage image = images.load(
      sample, is_resized ? codecs::PixelRows{0, loaded.height} : picture.held);
  const cv::Mat pixels =
      is_resized ? resize_to_letterbox(image.pixels, geometry) : image.pixels;

  if (!image.fault.empty()) result.faults.push_back(image.fault);
  result.source = image.source;
  result.ratio = geometry.ratio_y * loaded.height / image.source.height;
  result.pad_x = geometry.pad_x;
  result.pad_y = geometry.pad_y;
  const labels::Placement placement{geometry.ratio_x * loaded.width,
                                    geometry.ratio_y * loaded.height,
                                    geometry.pad_x, geometry.pad_y};
  return {{{placed_tile(pixels, picture)}, warp},
          labels::place_boxes(image.labels, placement)};
}

// A mosaic, and the warp that maps it to the network's image.
struct WarpedMosaic {
  MosaicPlan plan;
  Warp warp;
};

// Draws a sample to join a mosaic: from the data set, or from the epoch's
// weighted draws.
int64_t draw_partner(const SampleId& id, int64_t num_samples,
                     sampling::RandomStream& draws) {
  const int64_t drawn = draws.below(num_samples);
  return id.weights != nullptr ? id.weights->sample(id.epoch, drawn) : drawn;
}

WarpedMosaic draw_warped_mosaic(int64_t sample, const DrawPartner& partner,
                                codecs::ImageSize target,
                                const configs::Hyperparameters& hyp,
                                sampling::RandomStream& draws) {
  WarpedMosaic mosaic;
  mosaic.plan = draw_mosaic(sample, partner, target.height, target.width,
                            hyp.mosaic9, draws);
  mosaic.warp =
      draw_warp(hyp, {2 * target.height, 2 * target.width}, target, draws);
  return mosaic;
}

PlannedPicture load_mosaic(const WarpedMosaic& mosaic, codecs::ImageSize target,
                           codecs::PixelRows rows, double copy_paste,
                           sampling::RandomStream& paste_draws,
                           ImageSource& images,
                           std::vector<std::string>& faults) {
  const codecs::ImageSize canvas{2 * target.height, 2 * target.width};
  const codecs::PixelRows touched =
      rows.size() == target.height
          ? codecs::PixelRows{0, canvas.height}
          : rows_to_warp(mosaic.warp, target.width, rows, canvas);
  const LoadImage load = [&](int64_t sample) {
    return images.load(sample, {0, images.loaded_size(sample).height});
  };
  Mosaic built = build_mosaic(mosaic.plan, target.height, target.width, touched,
                              load, faults);
  const auto pastes = draw_pastes(copy_paste, canvas.width, built.outlines,
                                  built.boxes, paste_draws);
  if (!pastes.empty()) paste_objects(built, pastes, canvas.width, touched);
  return {{std::move(built.tiles), mosaic.warp},
          warp_boxes(built.boxes, mosaic.warp, target)};
}

// All random values of a sample that do not depend on the content of images.
struct MosaicDraws {
  WarpedMosaic first;
  std::optional<WarpedMosaic> second;
  double ratio = 1;  // weight of `first`
  Finish finish;
};

// Returns nullopt if the sample is not a mosaic.
std::optional<MosaicDraws> draw_mosaic_sample(
    const SampleId& id, int64_t num_samples, codecs::ImageSize target,
    const configs::Hyperparameters& hyp) {
  sampling::RandomStream draws = stream_of(id);
  if (draws.uniform() >= hyp.mosaic) return std::nullopt;
  const DrawPartner partner = [&] {
    return draw_partner(id, num_samples, draws);
  };
  MosaicDraws drawn;
  drawn.first = draw_warped_mosaic(id.sample, partner, target, hyp, draws);
  if (draws.uniform() < hyp.mixup) {
    drawn.second = draw_warped_mosaic(partner(), partner, target, hyp, draws);
    drawn.ratio = draw_mixup_ratio(draws);
  }
  drawn.finish = draw_finish(hyp, draws);
  return drawn;
}

}  // namespace

std::vector<int64_t> samples_of_mosaic(const SampleId& id, int64_t num_samples,
                                       int64_t height, int64_t width,
                                       const configs::Hyperparameters& hyp) {
  const auto drawn =
      draw_mosaic_sample(id, num_samples, size_of(height, width), hyp);
  if (!drawn) return {id.sample};
  std::vector<int64_t> samples = drawn->first.plan.samples;
  if (drawn->second) {
    const std::vector<int64_t>& more = drawn->second->plan.samples;
    samples.insert(samples.end(), more.begin(), more.end());
  }
  return samples;
}

PlannedSample plan_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 codecs::PixelRows rows,
                                 const configs::Hyperparameters& hyp,
                                 ImageSource& images) {
  const codecs::ImageSize target = size_of(height, width);
  // Make all draws first, because they decide which rows are needed.
  const auto drawn = draw_mosaic_sample(id, num_samples, target, hyp);
  if (!drawn) return plan_rect_sample(id, height, width, rows, hyp, images);
  const FinishedRows needed = rows_before(drawn->finish, rows, height);

  PlannedSample planned;
  sampling::RandomStream paste_draws =
      stream_of(id, sampling::RandomPurpose::kCopyPaste);
  const auto load = [&](const WarpedMosaic& mosaic) {
    return load_mosaic(mosaic, target, needed.made, hyp.copy_paste, paste_draws,
                       images, planned.sample.faults);
  };
  PlannedPicture picture = load(drawn->first);
  planned.recipe.picture = std::move(picture.recipe);
  if (drawn->second) {
    PlannedPicture mixed_in = load(*drawn->second);
    planned.recipe.mixed_in = std::move(mixed_in.recipe);
    planned.recipe.ratio = drawn->ratio;
    picture.boxes.insert(picture.boxes.end(), mixed_in.boxes.begin(),
                         mixed_in.boxes.end());
  }
  finish_plan(std::move(picture.boxes), target, drawn->finish, needed, images,
              planned);
  return planned;
}

PlannedSample plan_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, codecs::PixelRows rows,
                               const configs::Hyperparameters& hyp,
                               ImageSource& images) {
  sampling::RandomStream draws = stream_of(id);
  draws.uniform();  // skip the draw that decides about a mosaic
  const codecs::ImageSize target = size_of(height, width);
  const Warp warp = draw_warp(hyp, target, target, draws);
  const Finish finish = draw_finish(hyp, draws);
  const FinishedRows needed = rows_before(finish, rows, height);
  PlannedSample planned;
  PlannedPicture picture = letterboxed(id.sample, target, needed.made, true,
                                       warp, images, planned.sample);
  planned.recipe.picture = std::move(picture.recipe);
  finish_plan(warp_boxes(picture.boxes, warp, target), target, finish, needed,
              images, planned);
  return planned;
}

PlannedSample plan_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, codecs::PixelRows rows,
                                     ImageSource& images) {
  const codecs::ImageSize target = size_of(height, width);
  PlannedSample planned;
  PlannedPicture picture =
      letterboxed(sample, target, rows, false, Warp{}, images, planned.sample);
  planned.recipe.picture = std::move(picture.recipe);
  finish_plan(std::move(picture.boxes), target, Finish{}, {rows, rows}, images,
              planned);
  return planned;
}

NetworkSample with_pixels(PlannedSample planned) {
  planned.sample.pixels = render_sample(std::move(planned.recipe));
  return std::move(planned.sample);
}

NetworkSample make_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 codecs::PixelRows rows,
                                 const configs::Hyperparameters& hyp,
                                 ImageSource& images) {
  return with_pixels(
      plan_mosaic_sample(id, num_samples, height, width, rows, hyp, images));
}

NetworkSample make_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, codecs::PixelRows rows,
                               const configs::Hyperparameters& hyp,
                               ImageSource& images) {
  return with_pixels(plan_rect_sample(id, height, width, rows, hyp, images));
}

NetworkSample make_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, codecs::PixelRows rows,
                                     ImageSource& images) {
  return with_pixels(
      plan_validation_sample(sample, height, width, rows, images));
}

}  // namespace headroom::augment
