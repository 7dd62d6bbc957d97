#include "parallel/data_parallel/arena.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"

namespace headroom::data_parallel {
namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Not as_strided: views share one version counter, so an update of one entry
// would look like an update of all to autograd.
at::Tensor window(const at::Tensor& flat, int64_t offset,
                  const at::Tensor& like) {
  at::Tensor tensor = at::empty({0}, flat.options());
  tensor.set_(flat.storage(), flat.storage_offset() + offset, like.sizes(),
              like.strides());
  return tensor;
}

}  // namespace

void Arena::lay_out(const std::vector<ArenaEntry>& entries, int row_parts) {
  const int64_t row_multiple = alignment_ * row_parts;
  const auto close_row = [&] {
    if (rows_.empty()) return;
    Row& row = rows_.back();
    row.last_slot = static_cast<int64_t>(slots_.size());
    row.size = slots_.back().offset + slots_.back().size - row.offset;
    row.padded_size = round_up(row.size, row_multiple);
    size_ = row.offset + row.padded_size;
  };
  for (const ArenaEntry& entry : entries) {
    if (rows_.empty() || entry.row != rows_.back().number) {
      HEADROOM_CHECK(rows_.empty() || entry.row > rows_.back().number,
                     entry.name + " of row " + std::to_string(entry.row) +
                         " comes after row " +
                         std::to_string(rows_.back().number));
      close_row();
      rows_.push_back(
          {entry.row, size_, 0, 0, static_cast<int64_t>(slots_.size()), 0});
    }
    slots_.push_back({entry.name, size_, entry.tensor->numel(),
                      static_cast<int64_t>(rows_.size()) - 1});
    size_ = round_up(size_ + entry.tensor->numel(), alignment_);
  }
  close_row();
}

Arena::Arena(std::vector<ArenaEntry> entries, const ArenaOptions& options)
    : alignment_(kAlignmentBytes /
                 static_cast<int64_t>(c10::elementSize(options.scalar_type))) {
  at::NoGradGuard no_grad;
  lay_out(entries, options.row_parts);
  const auto place =
      at::TensorOptions(options.device).dtype(options.scalar_type);
  // One storage, or one a row.
  const auto provide = [&](bool apart, const MakeZeros& make, at::Tensor& whole,
                           std::vector<at::Tensor>& parts) {
    if (!apart) {
      whole =
          make ? make(size_, options.scalar_type) : at::zeros({size_}, place);
    }
    for (const Row& row : rows_) {
      parts.push_back(apart ? at::zeros({row.padded_size}, place)
                            : whole.narrow(0, row.offset, row.padded_size));
    }
  };
  provide(options.values_apart, {}, values_, row_values_);
  if (options.with_gradients) {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    provide(options.gradients_apart, options.make_gradients, gradients_,
            row_gradients_);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const at::Tensor given = *entries[i].tensor;
    HEADROOM_CHECK(given.is_cpu() && given.scalar_type() == options.scalar_type,
                   entries[i].name + " is not a CPU tensor of type " +
                       c10::toString(options.scalar_type));
    HEADROOM_CHECK(given.is_non_overlapping_and_dense(),
                   entries[i].name + " is not dense");
    const auto row = static_cast<size_t>(slots_[i].row);
    const int64_t offset = slots_[i].offset - rows_[row].offset;
    at::Tensor tensor = window(row_values_[row], offset, given);
    tensor.copy_(given);
    if (options.with_gradients) {
      tensor.set_requires_grad(true);
      tensor.mutable_grad() = window(row_gradients_[row], offset, tensor);
    }
    *entries[i].tensor = tensor;
    entries_.push_back(std::move(tensor));
  }
}

const at::Tensor& Arena::row_values(int64_t row) const {
  return row_values_.at(static_cast<size_t>(row));
}

const at::Tensor& Arena::row_gradients(int64_t row) const {
  return row_gradients_.at(static_cast<size_t>(row));
}

const at::Tensor& Arena::entry(int64_t slot) const {
  return entries_.at(static_cast<size_t>(slot));
}

at::Tensor Arena::view(int64_t slot, const at::Tensor& flat) const {
  HEADROOM_CHECK(flat.dim() == 1 && flat.numel() == size(),
                 "a buffer of " + std::to_string(flat.numel()) +
                     " elements seen through an arena of " +
                     std::to_string(size()));
  return window(flat, slots_.at(static_cast<size_t>(slot)).offset, entry(slot));
}

void Arena::zero_gradients() {
  HEADROOM_CHECK(gradients_.defined(), "an arena without gradients");
  gradients_.zero_();
}

}  // namespace headroom::data_parallel
