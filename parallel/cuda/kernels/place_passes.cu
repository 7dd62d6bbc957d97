#include <cuda_runtime.h>

#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/place_body.h"

namespace headroom::cuda {
namespace {

constexpr int kWarps = kSideThreads / kLanes;
constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the sum in every lane, always added in the same order.
__device__ double lane_sum(double value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

__device__ int64_t own_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t all_threads() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

template <typename T>
__global__ void __launch_bounds__(kSideThreads, kBlocksAtATime)
    distances_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  const PlaceLossLevel& level = arguments.levels[blockIdx.y];
  for (int64_t side = own_thread(); side < level.num_places * kBoxSides;
       side += all_threads()) {
    write_distance<T>(arguments, level, side);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBestThreads, kBlocksAtATime)
    best_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  __shared__ T alignments[kTaken][kBestThreads / 2];
  __shared__ int32_t places[kTaken][kBestThreads / 2];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t label = blockIdx.x; label < *arguments.num_labels;
       label += gridDim.x) {
    BestPlaces<T> best;
    add_candidates(arguments, label, thread, best);
    // The upper half of the threads hands its lists to the lower half.
    for (int half = kBestThreads / 2; half > 0; half /= 2) {
      if (thread >= half && thread < 2 * half) {
        for (int i = 0; i < kTaken; ++i) {
          alignments[i][thread - half] = best.alignments[i];
          places[i][thread - half] = best.places[i];
        }
      }
      __syncthreads();
      if (thread < half) {
        for (int i = 0; i < kTaken; ++i) {
          best.add(alignments[i][thread], places[i][thread]);
        }
      }
      __syncthreads();
    }
    if (thread == 0) write_best(arguments, label, best);
  }
}

__global__ void __launch_bounds__(kPlaceThreads, kBlocksAtATime)
    takers_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  const int64_t of_part = *arguments.num_labels * kTaken;
  for (int64_t i = own_thread(); i < arguments.taken_parts * of_part;
       i += all_threads()) {
    const int64_t part = i / of_part, label = i % of_part / kTaken;
    const auto entry = static_cast<int>(i % kTaken);
    if (!is_best(arguments, label, part, entry)) continue;
    const double number =
        arguments
            .all_taken[((part * arguments.capacity + label) * kTaken + entry) *
                           kTakenDoubles +
                       1];
    const LocalPlace at = local_place(arguments, arguments.images[label],
                                      static_cast<int64_t>(number));
    if (at.place < 0) continue;
    atomicAdd(arguments.owners + arguments.levels[at.level].begin + at.place,
              (TakerCount{1} << kTakerShift) + static_cast<TakerCount>(label));
  }
}

template <typename T>
__global__ void __launch_bounds__(kPlaceThreads, kBlocksAtATime)
    owners_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  const PlaceLossLevel& level = arguments.levels[blockIdx.y];
  for (int64_t place = own_thread(); place < level.num_places;
       place += all_threads()) {
    const T overlap = choose_owner<T>(arguments, level, place);
    if (overlap < 0) continue;
    const int64_t at = level.begin + place;
    auto* const maxima = reinterpret_cast<TakerCount*>(
        arguments.maxima +
        static_cast<int64_t>(arguments.owners[at] - 1) * kMaximaDoubles);
    atomicMax(maxima, ordered_bits(static_cast<double>(
                          static_cast<const T*>(arguments.alignments)[at])));
    atomicMax(maxima + 1, ordered_bits(static_cast<double>(overlap)));
  }
}

// The grid is blocks x levels x parts.
template <typename T>
__global__ void __launch_bounds__(kSideThreads, kBlocksAtATime)
    place_loss_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  const PlaceLossLevel& level = arguments.levels[blockIdx.y];
  PlaceSums sums;
  if (blockIdx.z == 0) {
    const int64_t count = level.num_places * arguments.num_classes;
    for (int64_t i = own_thread(); i < count; i += all_threads()) {
      sums.of[1] +=
          entropy_of(static_cast<const T*>(level.cls)[i], 0, {}).value;
    }
  } else {
    for (int64_t side = own_thread(); side < level.num_places * kBoxSides;
         side += all_threads()) {
      add_side<T>(arguments, level, side, sums);
    }
  }
  __shared__ double of_warps[kWarps][kPlaceSums];
  for (int item = 0; item < kPlaceSums; ++item) {
    const double sum = lane_sum(sums.of[item]);
    if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes][item] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= kPlaceSums) return;
  double sum = 0;
  for (int of = 0; of < kWarps; ++of) sum += of_warps[of][threadIdx.x];
  const int64_t block =
      (static_cast<int64_t>(blockIdx.y) * kPlaceParts + blockIdx.z) *
          arguments.blocks +
      blockIdx.x;
  arguments.partial[block * kPlaceSums + threadIdx.x] = sum;
}

// Runs as one block, with a warp for each level and item.
__global__ void finish_places_kernel(
    const __grid_constant__ PlaceLossArguments arguments) {
  __shared__ double sums[kLossLevels * kPlaceSums];
  const int number = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const double sum = lane_sum(
      place_sum(arguments, number / kPlaceSums, number % kPlaceSums, lane));
  if (lane == 0) sums[number] = sum;
  __syncthreads();
  if (threadIdx.x == 0) write_place_loss(arguments, sums);
}

template <typename T, typename G, int V>
__global__ void __launch_bounds__(kPlaceThreads, kBlocksAtATime)
    class_gradient_kernel(
        const __grid_constant__ PlaceLossArguments arguments) {
  const PlaceLossLevel& level = arguments.levels[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int64_t place = own_thread() / kLanes; place < level.num_places;
       place += all_threads() / kLanes) {
    class_gradient<T, G, V>(arguments, level, place, lane);
  }
}

template <typename T, typename G>
__global__ void __launch_bounds__(kSideThreads, kBlocksAtATime)
    side_gradient_kernel(const __grid_constant__ PlaceLossArguments arguments) {
  const PlaceLossLevel& level = arguments.levels[blockIdx.y];
  for (int64_t side = own_thread(); side < level.num_places * kBoxSides;
       side += all_threads()) {
    side_gradient<T, G>(arguments, level, side);
  }
}

// Blocks for `count` units of work, of which a block does `at_once` at a time.
unsigned blocks_for(int64_t count, int64_t at_once) {
  constexpr int64_t kMostBlocks = 4096;
  const int64_t blocks = (count + at_once - 1) / at_once;
  return static_cast<unsigned>(blocks < 1             ? 1
                               : blocks > kMostBlocks ? kMostBlocks
                                                      : blocks);
}

// The grid for all places of the levels, with `at_once` places per block.
dim3 grid_of_places(const PlaceLossArguments& arguments, int64_t at_once) {
  int64_t most = 0;
  for (int i = 0; i < arguments.num_levels; ++i) {
    const int64_t places = arguments.levels[i].num_places;
    most = places > most ? places : most;
  }
  return {blocks_for(most, at_once),
          static_cast<unsigned>(arguments.num_levels)};
}

template <typename T>
int find_best(const PlaceLossArguments& arguments, void* stream) {
  const cudaError_t error = launch_kernel(
      distances_kernel<T>, grid_of_places(arguments, kSideThreads / kBoxSides),
      kSideThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(best_kernel<T>, blocks_for(arguments.capacity, 1),
                       kBestThreads, stream, arguments);
}

template <typename T>
int find_owners(const PlaceLossArguments& arguments, void* stream) {
  const cudaError_t error = launch_kernel(
      takers_kernel,
      blocks_for(arguments.taken_parts * arguments.capacity * kTaken,
                 kPlaceThreads),
      kPlaceThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(owners_kernel<T>,
                       grid_of_places(arguments, kPlaceThreads), kPlaceThreads,
                       stream, arguments);
}

template <typename T>
int sum_terms(const PlaceLossArguments& arguments, void* stream) {
  const dim3 grid(static_cast<unsigned>(arguments.blocks),
                  static_cast<unsigned>(arguments.num_levels), kPlaceParts);
  const cudaError_t error = launch_kernel(place_loss_kernel<T>, grid,
                                          kSideThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(
      finish_places_kernel, 1,
      static_cast<unsigned>(arguments.num_levels * kPlaceSums * kLanes), stream,
      arguments);
}

// Lanes write 16 bytes of classes at a time if the gradient has 16 bits; other
// gradients may have an odd number of channels.
template <typename T, typename G>
int write_gradients(const PlaceLossArguments& arguments, void* stream) {
  constexpr int kWidth = sizeof(G) == 2 ? kVectorBytes / 2 : 1;
  const cudaError_t error =
      launch_kernel(class_gradient_kernel<T, G, kWidth>,
                    grid_of_places(arguments, kPlaceThreads / kLanes),
                    kPlaceThreads, stream, arguments);
  if (error != cudaSuccess) return error;
  return launch_kernel(side_gradient_kernel<T, G>,
                       grid_of_places(arguments, kSideThreads / kBoxSides),
                       kSideThreads, stream, arguments);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_best_places(const headroom::cuda::PlaceLossArguments* arguments,
                         void* stream) {
  using namespace headroom::cuda;
  return arguments->is_double ? find_best<double>(*arguments, stream)
                              : find_best<float>(*arguments, stream);
}

int headroom_place_owners(const headroom::cuda::PlaceLossArguments* arguments,
                          void* stream) {
  using namespace headroom::cuda;
  return arguments->is_double ? find_owners<double>(*arguments, stream)
                              : find_owners<float>(*arguments, stream);
}

int headroom_place_loss(const headroom::cuda::PlaceLossArguments* arguments,
                        void* stream) {
  using namespace headroom::cuda;
  return arguments->is_double ? sum_terms<double>(*arguments, stream)
                              : sum_terms<float>(*arguments, stream);
}

int headroom_place_loss_gradient(
    const headroom::cuda::PlaceLossArguments* arguments, void* stream) {
  using namespace headroom::cuda;
  switch (arguments->gradient_type) {
    case ElementType::kFloat64:
      return write_gradients<double, double>(*arguments, stream);
    case ElementType::kFloat32:
      return write_gradients<float, float>(*arguments, stream);
    case ElementType::kBFloat16:
      return write_gradients<float, __nv_bfloat16>(*arguments, stream);
    case ElementType::kFloat16:
      return write_gradients<float, __half>(*arguments, stream);
  }
  return cudaErrorInvalidValue;
}
}
