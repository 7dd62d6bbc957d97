// Parity vectors: measured numbers of the reference detector, read for tests.
//
// They are in ../shared/parity of the source folder; its README defines the
// deterministic fill that rebuilds weights and images from names alone:
//   h = fnv1a64(tag);  z(i) = mix(h + i);  u(i) = top 24 bits of z(i) in [-1,
//   1)
//
// Every file read is listed on stdout as "parity file used: NAME".
// Threads: the test's one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "worker/model/layer.h"
#include "worker/weights/safetensors.h"

namespace headroom {

// If the vectors are missing, a test that needs them is skipped with `if
// (!parity_present()) GTEST_SKIP() << kParityMissing;`.
bool parity_present();
inline constexpr const char* kParityMissing =
    "../shared/parity is not here; it holds the reference's numbers";

// The path of a vector. `name` is relative to the folder of the vectors, such
// as "weights/x.safetensors"; it is printed at its first use.
std::filesystem::path parity_path(const std::string& name);

// Reads a bare NaN as null.
nlohmann::json load_parity_json(const std::string& name);
weights::Safetensors load_parity_tensors(const std::string& name);

uint64_t fnv1a64(std::string_view tag);
uint64_t rule_bits(uint64_t hash, uint64_t index);  // z(index)
// u(0..n-1) of `tag`, float32, row-major in `sizes`.
at::Tensor rule_values(std::string_view tag, at::IntArrayRef sizes);

// Fills parameters and statistics with values that depend on their names;
// anchors stay unchanged. Float32 and float64 get the same values, in any
// memory layout.
void fill_model(const model::NamedTensors& state);

// [n, 3, height, width] uint8, row-major.
at::Tensor rule_image(std::string_view tag, int64_t n, int64_t height,
                      int64_t width);
// The network's input: divided by 255 in float32, then cast; channels-last.
at::Tensor rule_input(std::string_view tag, int64_t n, int64_t height,
                      int64_t width, at::ScalarType scalar_type);

// ||a - b|| / ||b|| in double.
double relative_l2(const at::Tensor& a, const at::Tensor& b);

}  // namespace headroom
