#include "tests/support/parity.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>

#include "parallel/base/check.h"

namespace headroom {
namespace {

std::filesystem::path parity_folder() {
  return std::filesystem::path(HEADROOM_SOURCE_DIR) / ".." / "shared" /
         "parity";
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() &&
         std::string_view(text).substr(text.size() - end.size()) == end;
}

// JSON has no NaN, but the vectors contain it as the bare word NaN. This word
// occurs in no string.
std::string without_nan(std::string text) {
  for (std::size_t at = 0; (at = text.find("NaN", at)) != std::string::npos;)
    text.replace(at, 3, "null");
  return text;
}

at::Tensor filled_values(const model::NamedTensor& entry,
                         int64_t fields_per_anchor) {
  const at::Tensor& tensor = *entry.tensor;
  at::Tensor u = rule_values(entry.name, tensor.sizes());
  if (tensor.dim() == 4) {
    const double fan_in =
        static_cast<double>(tensor.size(1) * tensor.size(2) * tensor.size(3));
    const double gain = ends_with(entry.name, ".conv.weight") ? 9.0 : 3.0;
    return u.mul_(static_cast<float>(std::sqrt(gain / fan_in)));
  }
  if (ends_with(entry.name, ".bn.weight")) return u.mul_(0.125).add_(1);
  if (ends_with(entry.name, ".bn.bias") ||
      ends_with(entry.name, ".running_mean"))
    return u.mul_(0.125);
  if (ends_with(entry.name, ".running_var")) return u.abs_().mul_(0.5).add_(1);
  HEADROOM_CHECK(ends_with(entry.name, ".bias"), entry.name);
  u.mul_(0.5);
  // The classes of a head without anchors.
  if (entry.name.find(".cv3.") != std::string::npos) u.sub_(2);
  // The objectness of a head.
  if (fields_per_anchor > 4 && entry.name.find(".m.") != std::string::npos)
    u.view({-1, fields_per_anchor}).select(1, 4).sub_(2);
  return u;
}

}  // namespace

bool parity_present() {
  return std::filesystem::exists(parity_folder() / "README.md");
}

std::filesystem::path parity_path(const std::string& name) {
  static std::set<std::string> printed;
  if (printed.insert(name).second)
    std::printf("parity file used: %s\n", name.c_str());
  return parity_folder() / name;
}

nlohmann::json load_parity_json(const std::string& name) {
  std::ifstream file(parity_path(name));
  HEADROOM_CHECK(file, name + " cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return nlohmann::json::parse(without_nan(text));
}

weights::Safetensors load_parity_tensors(const std::string& name) {
  return weights::read_safetensors(parity_path(name));
}

uint64_t fnv1a64(std::string_view tag) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : tag) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211u;
  }
  return hash;
}

uint64_t rule_bits(uint64_t hash, uint64_t index) {
  uint64_t x = hash + index + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

at::Tensor rule_values(std::string_view tag, at::IntArrayRef sizes) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  const uint64_t hash = fnv1a64(tag);
  float* out = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    out[i] = static_cast<float>(
                 static_cast<int64_t>(
                     rule_bits(hash, static_cast<uint64_t>(i)) >> 40) -
                 8388608) *
             0x1p-23f;
  return values;
}

void fill_model(const model::NamedTensors& state) {
  const at::NoGradGuard no_grad;
  int64_t anchors_per_level = 0;
  for (const model::NamedTensor& entry : state)
    if (ends_with(entry.name, ".anchors"))
      anchors_per_level = entry.tensor->size(1);
  for (const model::NamedTensor& entry : state) {
    if (ends_with(entry.name, ".anchors") ||
        ends_with(entry.name, ".dfl.conv.weight"))
      continue;
    if (ends_with(entry.name, ".num_batches_tracked")) {
      entry.tensor->zero_();
      continue;
    }
    const int64_t fields =
        anchors_per_level > 0 ? entry.tensor->numel() / anchors_per_level : 1;
    entry.tensor->copy_(filled_values(entry, fields));
  }
}

at::Tensor rule_image(std::string_view tag, int64_t n, int64_t height,
                      int64_t width) {
  const std::string prefix = "image/" + std::string(tag);
  const uint64_t block_hash = fnv1a64(prefix + "/block");
  const uint64_t noise_hash = fnv1a64(prefix + "/noise");
  const int64_t block_rows = (height + 15) / 16;
  const int64_t block_columns = (width + 15) / 16;
  at::Tensor image = at::empty({n, 3, height, width}, at::kByte);
  uint8_t* out = image.data_ptr<uint8_t>();
  for (int64_t plane = 0, i = 0; plane < n * 3; ++plane)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x, ++i) {
        const int64_t block =
            (plane * block_rows + y / 16) * block_columns + x / 16;
        const uint64_t coarse =
            rule_bits(block_hash, static_cast<uint64_t>(block)) >> 56;
        const uint64_t fine =
            rule_bits(noise_hash, static_cast<uint64_t>(i)) >> 56;
        out[i] = static_cast<uint8_t>((3 * coarse + fine) >> 2);
      }
  return image;
}

at::Tensor rule_input(std::string_view tag, int64_t n, int64_t height,
                      int64_t width, at::ScalarType scalar_type) {
  return rule_image(tag, n, height, width)
      .to(at::kFloat)
      .div_(255)
      .to(scalar_type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

double relative_l2(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.detach().to(at::kDouble);
  const at::Tensor difference = a.detach().to(at::kDouble) - reference;
  return difference.norm().item<double>() / reference.norm().item<double>();
}

}  // namespace headroom
