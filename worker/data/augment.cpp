#include "worker/data/augment.h"

#include <utility>

#include "worker/data/affine.h"
#include "worker/data/flip.h"
#include "worker/data/hsv.h"
#include "worker/data/letterbox.h"
#include "worker/data/mixup.h"
#include "worker/data/mosaic.h"
#include "worker/data/random.h"

namespace headroom {
namespace {

ImageSize size_of(int64_t height, int64_t width) {
  return {static_cast<int32_t>(height), static_cast<int32_t>(width)};
}

RandomStream stream_of(const SampleId& id) {
  return {id.seed, static_cast<uint64_t>(id.epoch),
          static_cast<uint64_t>(id.sample), RandomPurpose::kAugmentation};
}

// The sample letterboxed; fills all of `result` but its pixels and boxes.
BoxedImage letterboxed(int64_t sample, int64_t height, int64_t width,
                       bool enlarge, const LoadImage& load,
                       NetworkSample& result) {
  const LoadedImage image = load(sample);
  if (!image.fault.empty()) result.faults.push_back(image.fault);
  LetterboxOptions options;
  options.enlarge = enlarge;
  const Letterbox geometry = letterbox_geometry(
      {image.pixels.rows, image.pixels.cols}, height, width, options);
  result.source = image.source;
  result.ratio = geometry.ratio_y * image.pixels.rows / image.source.height;
  result.pad_x = geometry.pad_x;
  result.pad_y = geometry.pad_y;
  const Placement placement{geometry.ratio_x * image.pixels.cols,
                            geometry.ratio_y * image.pixels.rows,
                            geometry.pad_x, geometry.pad_y};
  return {letterbox(image.pixels, geometry),
          place_boxes(image.labels, placement)};
}

void finish_training(BoxedImage image, const Hyperparameters& hyp,
                     RandomStream& draws, NetworkSample& result) {
  result.boxes = normalize_boxes(std::move(image.boxes), image.pixels.cols,
                                 image.pixels.rows);
  result.pixels = image.pixels;
  jitter_hsv(result.pixels, draw_hsv_gains(hyp, draws));
  if (draws.uniform() < hyp.flipud) flip_up_down(result.pixels, result.boxes);
  if (draws.uniform() < hyp.fliplr) {
    flip_left_right(result.pixels, result.boxes);
  }
}

}  // namespace

NetworkSample make_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 const Hyperparameters& hyp,
                                 const LoadImage& load) {
  RandomStream draws = stream_of(id);
  if (draws.uniform() >= hyp.mosaic) {
    return make_rect_sample(id, height, width, hyp, load);
  }
  NetworkSample result;
  const ImageSize target = size_of(height, width);
  const ImageSize canvas = size_of(2 * height, 2 * width);
  const auto warped_mosaic = [&](int64_t sample) {
    const MosaicPlan plan =
        draw_mosaic(sample, num_samples, height, width, draws);
    const Warp warp = draw_warp(hyp, canvas, target, draws);
    return apply_warp(build_mosaic(plan, height, width, load, result.faults),
                      warp, target);
  };
  BoxedImage image = warped_mosaic(id.sample);
  if (draws.uniform() < hyp.mixup) {
    const BoxedImage second = warped_mosaic(draws.below(num_samples));
    image = mix(image, second, draw_mixup_ratio(draws));
  }
  finish_training(std::move(image), hyp, draws, result);
  return result;
}

NetworkSample make_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, const Hyperparameters& hyp,
                               const LoadImage& load) {
  RandomStream draws = stream_of(id);
  draws.uniform();  // the mosaic's
  NetworkSample result;
  BoxedImage image = letterboxed(id.sample, height, width, true, load, result);
  const ImageSize target = size_of(height, width);
  const Warp warp = draw_warp(hyp, target, target, draws);
  finish_training(apply_warp(image, warp, target), hyp, draws, result);
  return result;
}

NetworkSample make_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, const LoadImage& load) {
  NetworkSample result;
  BoxedImage image = letterboxed(sample, height, width, false, load, result);
  result.boxes = normalize_boxes(std::move(image.boxes), width, height);
  result.pixels = image.pixels;
  return result;
}

}  // namespace headroom
