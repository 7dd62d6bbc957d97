#include "parallel/base/text.h"
#include "parallel/cuda/plugin_parts.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <optional>
#include <string>

#include "parallel/base/check.h"

namespace headroom::cuda {

int cuda_device_count() { return c10::cuda::device_count(); }

void check_cuda_device(int device) {
  const int count = cuda_device_count();
  if (device >= 0 && device < count) return;
  throw Error(
      "device",
      cat("CUDA device ", device, " is asked for, but ", count,
          count == 1 ? " is" : " are", " here"),
      count == 0 ? "use --device cpu" : cat("name one from 0 to ", count - 1));
}

std::string uuid_text(const char (&bytes)[16]) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string bus_address_text(int domain, int bus, int device) {
  char text[32];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.0",
                static_cast<unsigned>(domain), static_cast<unsigned>(bus),
                static_cast<unsigned>(device));
  return text;
}

std::optional<std::string> cuda_device_failure(int device) {
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess) before = device;
  cudaError_t result = cudaSetDevice(device);
  // Querying a stream does not wait, and returns the error of a failed device.
  // Errors about a capture in progress do not mean that the device failed.
  if (result == cudaSuccess) result = cudaStreamQuery(cudaStreamPerThread);
  if (before != device) static_cast<void>(cudaSetDevice(before));
  switch (result) {
    case cudaSuccess:
    case cudaErrorNotReady:
    case cudaErrorMemoryAllocation:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureImplicit:
      // Clear the error, or the next check would throw it.
      static_cast<void>(cudaGetLastError());
      return std::nullopt;
    default:
      return std::string("CUDA error: ") + cudaGetErrorString(result) + " (" +
             cudaGetErrorName(result) + ")";
  }
}

devices::DeviceInfo describe_cuda_device(int device) {
  check_cuda_device(device);
  cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  devices::DeviceInfo info;
  info.index = device;
  info.uuid = uuid_text(properties.uuid.bytes);
  info.name = properties.name;
  info.bus_address = bus_address_text(
      properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  info.compute_capability = 10 * properties.major + properties.minor;
  info.code = devices::parse_architectures(HEADROOM_CUDA_ARCHITECTURES);
  info.multiprocessors = properties.multiProcessorCount;
  info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  for (int other = 0; other < cuda_device_count(); ++other) {
    if (other == device) continue;
    int reaches = 0;
    C10_CUDA_CHECK(cudaDeviceCanAccessPeer(&reaches, device, other));
    if (reaches != 0) info.peers.push_back(other);
  }
  return info;
}

}  // namespace headroom::cuda
