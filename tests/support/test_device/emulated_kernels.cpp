#include "tests/support/test_device/emulated_kernels.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <memory>
#include <vector>

#include "parallel/cuda/kernel_arguments.h"
#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/cuda/kernels/loss_body.h"
#include "parallel/cuda/kernels/render_samples.h"
#include "parallel/cuda/map_call.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/page_locks.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

using kernels::MapGroups;

// So few blocks that a small map's grid has several, and its tests are quick.
constexpr int kMultiprocessors = 2;

void check(int error) {
  TORCH_CHECK(error == 0, "a kernel was not launched: error ", error);
}

kernels::StatisticsResult result_views(
    const kernels::StatisticsResult& result) {
  return {kernel_view(result.statistics), kernel_view(result.running)};
}

// A MapCall whose launches run at once or are recorded.
class EmulatedCall {
 public:
  EmulatedCall(const at::Tensor& y, MapGroups groups)
      : device_(y.device()), call_(kernel_view(y), groups, kMultiprocessors) {}

  cuda::MapCall* operator->() { return &call_; }

  void write(int (*pass)(const cuda::BatchNormArguments*, void*)) {
    call_.run([&](const cuda::BatchNormArguments& arguments,
                  const cuda::SumTargets&) {
      count_launch("batch norm");
      do_or_remember(device_, [pass, arguments] {
        check(pass(&arguments, /*stream=*/nullptr));
      });
    });
  }

  void sum(int (*pass)(const cuda::BatchNormArguments*, const cuda::SumTargets*,
                       void*)) {
    call_.run([&](const cuda::BatchNormArguments& arguments,
                  const cuda::SumTargets& targets) {
      count_launch("batch norm");
      do_or_remember(device_, [pass, own = arguments, to = targets]() mutable {
        // Doubles are large enough for either type.
        std::vector<double> partial(cuda::partial_elements(own));
        std::vector<unsigned> arrivals(cuda::kMostTiles);
        own.partial = partial.data();
        to.arrivals = arrivals.data();
        check(pass(&own, &to, /*stream=*/nullptr));
      });
    });
  }

 private:
  const c10::Device device_;
  cuda::MapCall call_;
};

void use_sums(c10::Device device, cuda::SumsCall& call) {
  call.run([device](const double* from, const cuda::SumTargets& targets,
                    int groups, int64_t channels) {
    count_launch("batch norm");
    do_or_remember(device, [=] {
      check(headroom_use_sums(from, &targets, groups, channels,
                              /*stream=*/nullptr));
    });
  });
}

devices::CommitPlace place_of_views(const devices::CommitPlace& place) {
  return {kernel_view(place.numbers), kernel_view(place.outcome)};
}

at::Tensor view_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? kernel_view(tensor) : tensor;
}

class EmulatedOptimizer final : public devices::DeviceOptimizer {
 public:
  EmulatedOptimizer(std::span<const devices::FlatBufferRange> ranges,
                    int64_t size)
      : pieces_(std::make_shared<const Pieces>(
            cuda::flat_buffer_pieces(ranges, size))),
        size_(size) {}

  int64_t num_partial() const override {
    return static_cast<int64_t>(pieces_->size());
  }

  void squares(const devices::FlatBuffers& buffers,
               const devices::CommitPlace& place,
               const at::Tensor& partial) override {
    count_launch("gradient squares");
    cuda::FlatBufferArguments arguments = arguments_of(buffers, place);
    arguments.partial = kernel_view(partial).mutable_data_ptr<double>();
    give(buffers, arguments, headroom_gradient_squares);
  }

  void commit(const devices::FlatBuffers& buffers,
              const devices::CommitPlace& place) override {
    count_launch("commit");
    give(buffers, arguments_of(buffers, place), headroom_commit);
  }

 private:
  using Pieces = std::vector<cuda::FlatBufferPiece>;

  cuda::FlatBufferArguments arguments_of(
      const devices::FlatBuffers& buffers,
      const devices::CommitPlace& place) const {
    cuda::FlatBufferArguments arguments = cuda::flat_buffer_arguments(
        {kernel_view(buffers.parameters), kernel_view(buffers.gradients),
         kernel_view(buffers.accumulated), kernel_view(buffers.first),
         view_or_none(buffers.second), view_or_none(buffers.average)},
        place_of_views(place), size_);
    arguments.pieces = pieces_->data();
    arguments.num_pieces = num_partial();
    return arguments;
  }

  // The pieces live as long as the buffers.
  void give(const devices::FlatBuffers& buffers,
            const cuda::FlatBufferArguments& arguments,
            int (*kernel)(const cuda::FlatBufferArguments*, void*)) const {
    do_or_remember(buffers.parameters.device(),
                   [pieces = pieces_, arguments, kernel] {
                     check(kernel(&arguments, /*stream=*/nullptr));
                   });
  }

  const std::shared_ptr<const Pieces> pieces_;
  const int64_t size_;
};

kernels::LossCall call_of_views(kernels::LossCall call) {
  for (kernels::LossCall::Level& level : call.levels) {
    for (at::Tensor* const tensor :
         {&level.head, &level.objectness, &level.classes, &level.fit,
          &level.gradient}) {
      *tensor = kernel_view(*tensor);
    }
  }
  for (at::Tensor* const tensor : {&call.targets, &call.scales, &call.partial,
                                   &call.items, &call.total, &call.by_total}) {
    *tensor = kernel_view(*tensor);
  }
  return call;
}

}  // namespace

void EmulatedKernels::channel_sums(const at::Tensor& y, MapGroups groups,
                                   const at::Tensor& sums) {
  ++passes_;
  EmulatedCall call(y, groups);
  call->write_sums(kernel_view(sums));
  call.sum(cuda::headroom_channel_sums);
}

void EmulatedKernels::batch_statistics(
    const at::Tensor& y, MapGroups groups, double epsilon,
    const kernels::StatisticsResult& result) {
  ++passes_;
  EmulatedCall call(y, groups);
  call->write_statistics(epsilon, result_views(result));
  call.sum(cuda::headroom_channel_sums);
}

void EmulatedKernels::statistics_of_sums(
    const at::Tensor& sums, MapGroups groups, double epsilon,
    const kernels::StatisticsResult& result) {
  cuda::SumsCall call(kernel_view(sums), groups);
  call.write_statistics(epsilon, result_views(result));
  use_sums(sums.device(), call);
}

void EmulatedKernels::normalise_and_activate(
    const at::Tensor& y, MapGroups groups, const at::Tensor& statistics,
    const at::Tensor& weight, const at::Tensor& bias,
    const layers::ActivationFunction& activation, const at::Tensor& out) {
  ++passes_;
  EmulatedCall call(y, groups);
  call->set_statistics(kernel_view(statistics));
  call->set_affine(kernel_view(weight), kernel_view(bias), activation);
  call->set_result(kernel_view(out));
  call.write(cuda::headroom_normalise_and_activate);
}

void EmulatedKernels::activation_gradient_sums(
    const at::Tensor& y, const at::Tensor& dout, MapGroups groups,
    const at::Tensor& statistics, const at::Tensor& weight,
    const at::Tensor& bias, const layers::ActivationFunction& activation,
    const kernels::GradientSumsResult& result) {
  ++passes_;
  EmulatedCall call(y, groups);
  call->set_statistics(kernel_view(statistics));
  call->set_affine(kernel_view(weight), kernel_view(bias), activation);
  call->set_gradient(kernel_view(dout));
  call->write_gradients({kernel_view(result.weight_gradient),
                         kernel_view(result.bias_gradient),
                         kernel_view(result.sums), kernel_view(result.means),
                         result.adds_gradients});
  call.sum(cuda::headroom_activation_gradient_sums);
}

void EmulatedKernels::means_of_sums(const at::Tensor& sums, MapGroups groups,
                                    const at::Tensor& means) {
  cuda::SumsCall call(kernel_view(sums), groups);
  call.write_means(kernel_view(means));
  use_sums(sums.device(), call);
}

void EmulatedKernels::norm_gradient(
    const at::Tensor& y, const at::Tensor& dout, MapGroups groups,
    const at::Tensor& statistics, const at::Tensor& weight,
    const at::Tensor& bias, const layers::ActivationFunction& activation,
    const at::Tensor& means, const at::Tensor& dy) {
  ++passes_;
  EmulatedCall call(y, groups);
  call->set_statistics(kernel_view(statistics));
  call->set_affine(kernel_view(weight), kernel_view(bias), activation);
  call->set_gradient(kernel_view(dout));
  call->set_means(kernel_view(means));
  call->set_result(kernel_view(dy));
  call.write(cuda::headroom_norm_gradient);
}

void EmulatedKernels::max_pool(const at::Tensor& x, int64_t window,
                               const at::Tensor& out,
                               const at::Tensor& choices) {
  count_launch("max pool");
  do_or_remember(x.device(), [arguments = cuda::pool_arguments(
                                  kernel_view(x), window, kernel_view(out),
                                  view_or_none(choices))] {
    check(cuda::headroom_max_pool(&arguments, /*stream=*/nullptr));
  });
}

void EmulatedKernels::max_pool_gradient(const at::Tensor& dout,
                                        const at::Tensor& choices,
                                        int64_t window, const at::Tensor& dx) {
  count_launch("max pool");
  do_or_remember(dx.device(), [arguments = cuda::pool_gradient_arguments(
                                   kernel_view(dout), kernel_view(choices),
                                   window, kernel_view(dx))] {
    check(cuda::headroom_max_pool_gradient(&arguments, /*stream=*/nullptr));
  });
}

void EmulatedKernels::scale_images(const at::Tensor& images,
                                   const at::Tensor& input) {
  count_launch("scale images");
  do_or_remember(input.device(),
                 [arguments = cuda::image_arguments(kernel_view(images),
                                                    kernel_view(input))] {
                   check(headroom_scale_images(&arguments, /*stream=*/nullptr));
                 });
}

at::Tensor EmulatedKernels::upload(const at::Tensor& host,
                                   const c10::Device& device) {
  at::Tensor there = at::empty_strided(host.sizes(), host.strides(),
                                       host.options().device(device));
  upload_into(host, there);
  return there;
}

void EmulatedKernels::upload_into(const at::Tensor& host,
                                  const at::Tensor& target) {
  // As in the plugin: the copy's source is page-locked, and lives until it is
  // read.
  const std::shared_ptr<void> pages =
      lock_test_pages(static_cast<int64_t>(host.nbytes()) + 1);
  const at::Tensor copy =
      at::from_blob(pages.get(), host.sizes(), host.strides(), host.options());
  copy.copy_(host);
  do_or_remember(target.device(),
                 [pages, copy, to = kernel_view(target)] { to.copy_(copy); });
}

void EmulatedKernels::loss(const kernels::LossCall& call) {
  count_launch("loss", 2);
  do_or_remember(call.targets.device(),
                 [arguments = cuda::loss_arguments(call_of_views(call))] {
                   check(headroom_loss(&arguments, /*stream=*/nullptr));
                 });
}

void EmulatedKernels::loss_gradient(const kernels::LossCall& call) {
  count_launch("loss", 2);
  do_or_remember(
      call.targets.device(),
      [arguments = cuda::loss_arguments(call_of_views(call))] {
        check(headroom_loss_gradient(&arguments, /*stream=*/nullptr));
      });
}

std::unique_ptr<devices::DeviceOptimizer> EmulatedKernels::make_optimizer(
    int, std::span<const devices::FlatBufferRange> ranges, int64_t size) {
  return std::make_unique<EmulatedOptimizer>(ranges, size);
}

void EmulatedKernels::decide(const at::Tensor& partial, const at::Tensor& items,
                             const devices::CommitPlace& place) {
  count_launch("decide");
  do_or_remember(items.device(), [arguments = cuda::decision_arguments(
                                      kernel_view(partial), kernel_view(items),
                                      place_of_views(place))] {
    check(headroom_decide(&arguments, /*stream=*/nullptr));
  });
}

void EmulatedKernels::move_running(const devices::RunningStatistics& statistics,
                                   const devices::CommitPlace& place) {
  count_launch("running statistics");
  devices::RunningStatistics views = statistics;
  for (at::Tensor* const tensor :
       {&views.values, &views.average, &views.sums, &views.places}) {
    *tensor = kernel_view(*tensor);
  }
  do_or_remember(
      statistics.values.device(),
      [arguments = cuda::running_arguments(views, place_of_views(place))] {
        check(headroom_move_running(&arguments, /*stream=*/nullptr));
      });
}

void EmulatedKernels::render_samples(const at::Tensor& region,
                                     std::span<const int64_t> starts,
                                     const at::Tensor& images) {
  for (size_t first = 0; first < starts.size(); first += cuda::kMostRendered) {
    const cuda::RenderArguments arguments = cuda::render_arguments(
        kernel_view(region), starts, kernel_view(images), first);
    do_or_remember(images.device(), [arguments] {
      check(headroom_render_samples(&arguments, /*stream=*/nullptr));
    });
  }
}

}  // namespace headroom
