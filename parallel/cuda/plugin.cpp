// headroom_device_api: the one symbol that libheadroom_cuda.so exports.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "parallel/cuda/kernels/trap.h"
#include "parallel/cuda/nccl_communicator.h"
#include "parallel/cuda/nccl_connection.h"
#include "parallel/cuda/plugin_parts.h"
#include "parallel/devices/device_api.h"
#include "parallel/nvml/nvml.h"

namespace headroom::cuda {
namespace {

class CudaDeviceApi final : public devices::DeviceApi {
 public:
  explicit CudaDeviceApi(const devices::HostServices& services)
      : services_(services) {}

  c10::DeviceType device_type() const override { return c10::DeviceType::CUDA; }

  int device_count() const override { return cuda_device_count(); }

  devices::DeviceInfo describe(int device) const override {
    return describe_cuda_device(device);
  }

  int64_t free_bytes(int device) const override {
    check_cuda_device(device);
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  std::optional<devices::DeviceUse> use_of(int device) const override {
    const std::string uuid = describe_cuda_device(device).uuid;
    const nvml::Nvml nvml;
    std::optional<nvml::Card> card = nvml.card_of(uuid);
    // CUDA reports the UUID of a MIG part with the prefix of a card.
    if (!card) card = nvml.card_of("MIG" + uuid.substr(3));
    if (!card) return std::nullopt;
    devices::DeviceUse use{card->used_bytes(), std::nullopt};
    for (const nvml::CardProcess& process : card->processes) {
      if (process.pid == getpid()) use.own_bytes = process.used_bytes;
    }
    return use;
  }

  devices::DeviceMemory& memory(int device) override {
    check_cuda_device(device);
    std::call_once(counts_, [&] { memories_ = make_cuda_memories(services_); });
    return *memories_[static_cast<size_t>(device)];
  }

  kernels::DeviceKernels& kernels() override { return cuda_kernels(); }

  // The pages are locked for all devices of the process. The loader's threads
  // have not selected a device; without the guard every process would create a
  // context on the first card.
  std::shared_ptr<void> lock_pages(int64_t bytes) override {
    const c10::cuda::OptionalCUDAGuard guard(
        c10::cuda::getDeviceIndexWithPrimaryContext());
    void* address = nullptr;
    const cudaError_t result = cudaHostAlloc(
        &address, static_cast<size_t>(bytes), cudaHostAllocPortable);
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error("memory",
                  "the host has no " + format_bytes(bytes) +
                      " whose pages can be locked for copies to the device",
                  "use a smaller --host-memory-limit, --batch or --img",
                  ExitCode::kResource);
    }
    C10_CUDA_CHECK(result);
    return {address, [](void* held) {
              try {
                const c10::cuda::OptionalCUDAGuard there(
                    c10::cuda::getDeviceIndexWithPrimaryContext());
                static_cast<void>(cudaFreeHost(held));
              } catch (const c10::Error&) {
                // At the end of the process the driver may already be unloaded.
              }
            }};
  }

  void leave_default_stream(int device) override {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(index);
    if (before != c10::cuda::getDefaultCUDAStream(index)) return;
    const c10::cuda::CUDAStream own =
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index);
    at::cuda::CUDAEvent given;
    given.record(before);
    given.block(own);
    c10::cuda::setCurrentCUDAStream(own);
  }

  std::unique_ptr<devices::DeviceGraph> make_graph(int device) override {
    return make_cuda_graph(device);
  }

  std::shared_ptr<collectives::DeviceRanks> connect_ranks(
      collectives::Communicator& world,
      const devices::DeviceCommunicatorOptions& options) override {
    const devices::DeviceInfo device = describe_cuda_device(options.device);
    return make_nccl_ranks(
        world,
        {c10::Device(c10::DeviceType::CUDA,
                     static_cast<c10::DeviceIndex>(options.device)),
         device.uuid, services_, lock_pages(sizeof(int32_t))},
        options);
  }

  std::optional<std::string> failure(int device) const override {
    return cuda_device_failure(device);
  }

  void break_device(int device, BreakIn where) override {
    const auto trap = [](const c10::Stream& stream) {
      C10_CUDA_CHECK(
          static_cast<cudaError_t>(headroom_trap(stream.native_handle())));
    };
    if (where == BreakIn::kNextCollective) {
      before_next_operation(trap);
    } else {
      trap(
          c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device))
              .unwrap());
    }
  }

  void abort_communicators() override { abort_nccl_communicators(); }

 private:
  const devices::HostServices services_;
  std::once_flag counts_;
  std::vector<devices::DeviceMemory*> memories_;
};

}  // namespace
}  // namespace headroom::cuda

extern "C" headroom::devices::DeviceApi* headroom_device_api(
    int version, const headroom::devices::HostServices* services) {
  if (version != headroom::devices::kDeviceApiVersion) return nullptr;
  headroom::cuda::prepare_nccl();
  static auto* const api = new headroom::cuda::CudaDeviceApi(*services);
  return api;
}
