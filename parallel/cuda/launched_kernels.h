// LaunchedKernels: DeviceKernels (worker/kernels/device_kernels.h) over the
// launchers of kernels/: checks the tensors, converts them to plain arguments,
// and launches. No CUDA headers.
//
// `Device` is where the kernels run: a card (device_kernels.cpp), or the CPU in
// tests (tests/support/test_device/emulated_kernels.h). Its static functions:
//
//   operand(values)          a tensor, or the tensors of a struct, as the
//                            kernels read them
//   multiprocessors(device)  number of the device's multiprocessors
//   launch(launch, work)     runs work(const LaunchPlace&), now or later;
//                            `work` may be copied, and returns a cudaError_t
//   copy(host, target)       copies to the device; the host does not wait
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/cuda/kernel_arguments.h"
#include "parallel/cuda/kernels/launch.h"
#include "parallel/cuda/map_call.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::cuda {

struct Launch {
  c10::Device device;
  const char* name;           // launches are counted by name
  int kernels = 1;            // kernels that it launches
  int64_t partial_bytes = 0;  // size of LaunchPlace::partial
};

template <typename Device>
class LaunchedKernels final : public kernels::DeviceKernels {
 public:
  void channel_sums(const at::Tensor& y, kernels::MapGroups groups,
                    const at::Tensor& sums) override {
    MapCall call = map_call(y, groups);
    call.write_sums(Device::operand(sums));
    run(y, call, headroom_channel_sums);
  }

  void batch_statistics(const at::Tensor& y, kernels::MapGroups groups,
                        double epsilon,
                        const kernels::StatisticsResult& result) override {
    MapCall call = map_call(y, groups);
    call.write_statistics(epsilon, Device::operand(result));
    run(y, call, headroom_channel_sums);
  }

  void statistics_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                          double epsilon,
                          const kernels::StatisticsResult& result) override {
    MapCall call(Device::operand(sums), groups);
    call.write_statistics(epsilon, Device::operand(result));
    use_sums(sums, call);
  }

  void normalise_and_activate(const kernels::NormedMap& map,
                              const at::Tensor& out) override {
    MapCall call = normed_call(map);
    call.set_result(Device::operand(out));
    run(map.y, call, headroom_normalise_and_activate);
  }

  void activation_gradient_sums(
      const kernels::NormedMap& map, const at::Tensor& dout,
      const kernels::GradientSumsResult& result) override {
    MapCall call = normed_call(map);
    call.set_gradient(Device::operand(dout));
    call.write_gradients(Device::operand(result));
    run(map.y, call, headroom_activation_gradient_sums);
  }

  void means_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                     const at::Tensor& means) override {
    MapCall call(Device::operand(sums), groups);
    call.write_means(Device::operand(means));
    use_sums(sums, call);
  }

  void norm_gradient(const kernels::NormedMap& map, const at::Tensor& dout,
                     const at::Tensor& means, const at::Tensor& dy) override {
    MapCall call = normed_call(map);
    call.set_gradient(Device::operand(dout));
    call.set_means(Device::operand(means));
    call.set_result(Device::operand(dy));
    run(map.y, call, headroom_norm_gradient);
  }

  void max_pool(const at::Tensor& x, int64_t window, const at::Tensor& out,
                const at::Tensor& choices) override {
    launch({x.device(), "max pool"}, headroom_max_pool,
           pool_arguments(Device::operand(x), window, Device::operand(out),
                          Device::operand(choices)));
  }

  void max_pool_gradient(const at::Tensor& dout, const at::Tensor& choices,
                         int64_t window, const at::Tensor& dx) override {
    launch(
        {dx.device(), "max pool"}, headroom_max_pool_gradient,
        pool_gradient_arguments(Device::operand(dout), Device::operand(choices),
                                window, Device::operand(dx)));
  }

  void scale_images(const at::Tensor& images,
                    const at::Tensor& input) override {
    launch({input.device(), "scale images"}, headroom_scale_images,
           image_arguments(Device::operand(images), Device::operand(input)));
  }

  void render_samples(const at::Tensor& region, std::span<const int64_t> starts,
                      const at::Tensor& images) override {
    for (size_t first = 0; first < starts.size(); first += kMostRendered) {
      launch({images.device(), "render"}, headroom_render_samples,
             render_arguments(Device::operand(region), starts,
                              Device::operand(images), first));
    }
  }

  at::Tensor upload(const at::Tensor& host,
                    const c10::Device& device) override {
    at::Tensor there = at::empty_strided(host.sizes(), host.strides(),
                                         host.options().device(device));
    upload_into(host, there);
    return there;
  }

  void upload_into(const at::Tensor& host, const at::Tensor& target) override {
    HEADROOM_CHECK(host.is_non_overlapping_and_dense() && host.is_cpu(),
                   "a tensor of the host that is not in one piece");
    Device::copy(host, target);
  }

  // Each direction launches two kernels.
  void loss(const kernels::LossCall& call) override {
    launch({call.targets.device(), "loss", 2}, headroom_loss,
           loss_arguments(Device::operand(call)));
  }

  void loss_gradient(const kernels::LossCall& call) override {
    launch({call.targets.device(), "loss", 2}, headroom_loss_gradient,
           loss_arguments(Device::operand(call)));
  }

  // Each pass launches two kernels.
  void best_places(const kernels::PlaceLossCall& call) override {
    run(call, headroom_best_places);
  }

  void place_owners(const kernels::PlaceLossCall& call) override {
    run(call, headroom_place_owners);
  }

  void place_loss(const kernels::PlaceLossCall& call) override {
    run(call, headroom_place_loss);
  }

  void place_loss_gradient(const kernels::PlaceLossCall& call) override {
    run(call, headroom_place_loss_gradient);
  }

  at::Tensor make_pieces(const c10::Device& device,
                         std::span<const kernels::FlatBufferRange> ranges,
                         int64_t size) override {
    const std::vector<FlatBufferPiece> pieces =
        flat_buffer_pieces(ranges, size);
    const at::Tensor host = at::empty(
        {static_cast<int64_t>(pieces.size()), kPieceBytes}, at::kByte);
    std::ranges::copy(std::as_bytes(std::span(pieces)),
                      static_cast<std::byte*>(host.mutable_data_ptr()));
    return upload(host, device);
  }

  void squares(const kernels::FlatBuffers& buffers,
               const kernels::CommitPlace& place,
               const at::Tensor& partial) override {
    FlatBufferArguments arguments =
        flat_buffer_arguments(Device::operand(buffers), Device::operand(place));
    HEADROOM_CHECK(partial.numel() == arguments.num_pieces &&
                       partial.is_contiguous() &&
                       partial.scalar_type() == at::kDouble &&
                       partial.device() == buffers.parameters.device(),
                   "partial sums are on the device, one for each piece");
    arguments.partial =
        Device::operand(partial).template mutable_data_ptr<double>();
    launch({partial.device(), "gradient squares"}, headroom_gradient_squares,
           arguments);
  }

  void decide(const at::Tensor& partial,
              const kernels::CommitPlace& place) override {
    launch(
        {partial.device(), "decide"}, headroom_decide,
        decision_arguments(Device::operand(partial), Device::operand(place)));
  }

  void commit(const kernels::FlatBuffers& buffers,
              const kernels::CommitPlace& place) override {
    launch({buffers.parameters.device(), "commit"}, headroom_commit,
           flat_buffer_arguments(Device::operand(buffers),
                                 Device::operand(place)));
  }

  void move_running(const kernels::RunningStatistics& statistics,
                    const kernels::CommitPlace& place) override {
    launch(
        {statistics.values.device(), "running statistics"},
        headroom_move_running,
        running_arguments(Device::operand(statistics), Device::operand(place)));
  }

 private:
  static MapCall map_call(const at::Tensor& y, kernels::MapGroups groups) {
    return MapCall(Device::operand(y), groups,
                   Device::multiprocessors(y.device()));
  }

  static MapCall normed_call(const kernels::NormedMap& map) {
    MapCall call = map_call(map.y, map.groups);
    call.set_norm(Device::operand(map.statistics), Device::operand(map.weight),
                  Device::operand(map.bias), map.activation);
    return call;
  }

  // Launches a pass that writes a map.
  static void run(const at::Tensor& y, MapCall& call,
                  int (*pass)(const BatchNormArguments*, void*)) {
    call.run([&](const BatchNormArguments& arguments, const SumTargets&) {
      launch({y.device(), kBatchNorm}, pass, arguments);
    });
  }

  // Launches a pass that sums.
  using SummingPass = int (*)(const BatchNormArguments*, const SumTargets*,
                              void*);
  static void run(const at::Tensor& y, MapCall& call, SummingPass pass) {
    call.run([&](const BatchNormArguments& arguments, const SumTargets& to) {
      Device::launch({y.device(), kBatchNorm, 1, partial_bytes(arguments)},
                     [pass, own = arguments,
                      targets = to](const LaunchPlace& place) mutable {
                       own.partial = place.partial;
                       targets.arrivals = place.arrivals;
                       return pass(&own, &targets, place.stream);
                     });
    });
  }

  static void run(const kernels::PlaceLossCall& call,
                  int (*pass)(const PlaceLossArguments*, void*)) {
    launch({call.labels.device(), "place loss", 2}, pass,
           place_loss_arguments(Device::operand(call)));
  }

  static void use_sums(const at::Tensor& sums, MapCall& call) {
    call.run([&](const BatchNormArguments& arguments, const SumTargets& to) {
      Device::launch({sums.device(), kBatchNorm},
                     [arguments, to](const LaunchPlace& place) {
                       return headroom_use_sums(&arguments, &to, place.stream);
                     });
    });
  }

  template <typename Arguments>
  static void launch(const Launch& launch,
                     int (*kernel)(const Arguments*, void*),
                     const Arguments& arguments) {
    Device::launch(launch, [kernel, arguments](const LaunchPlace& place) {
      return kernel(&arguments, place.stream);
    });
  }

  static constexpr const char* kBatchNorm = "batch norm";
};

}  // namespace headroom::cuda
