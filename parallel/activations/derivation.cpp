#include "parallel/activations/derivation.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "parallel/base/check.h"

namespace headroom::activations {

// A source of a map: a tensor, or the derivation that computes it.
struct Source {
  at::Tensor tensor;
  std::shared_ptr<Derivation> derivation;  // nullptr: `tensor` is the source
  std::vector<int64_t> strides;
};

class Derivation {
 public:
  Derivation(const at::Tensor& map, std::vector<Source> sources, MakeAgain make,
             DerivationCost cost)
      : memory_(map.storage().getWeakStorageImpl()),
        options_(map.options()),
        sizes_(map.sizes().vec()),
        strides_(map.strides().vec()),
        offset_(map.storage_offset()),
        unused_(std::move(sources)),
        make_(std::move(make)),
        cost_(cost) {}

  DerivationCost cost() const { return cost_; }
  bool describes(const at::Tensor& tensor) const {
    if (tensor.sizes() != sizes_ || tensor.storage_offset() != offset_ ||
        tensor.scalar_type() != options_.dtype()) {
      return false;
    }
    // The stride of an axis with one element is meaningless; views change it.
    for (size_t axis = 0; axis < sizes_.size(); ++axis) {
      if (sizes_[axis] > 1 && tensor.stride(axis) != strides_[axis])
        return false;
    }
    return true;
  }
  // True once the map has been computed again: the sources are then released,
  // so a later save must keep the map itself.
  bool is_spent() const { return make_ == nullptr; }

  void announce() {
    // The first use also stores the sources, because value() needs them.
    if (uses_++ > 0 || is_spent() || !sources_.empty()) return;
    for (Source& source : unused_) {
      if (source.derivation != nullptr) {
        sources_.emplace_back(std::move(source.derivation),
                              std::move(source.strides));
      } else {
        sources_.emplace_back(std::move(source.tensor));
      }
    }
    unused_.clear();
  }
  void withdraw() {
    if (--uses_ == 0) value_.reset();
  }

  at::Tensor value() {
    if (value_.defined()) return value_;
    if (at::Tensor map = original(); map.defined()) return map;
    HEADROOM_CHECK(!is_spent(), "a derived map is wanted after its last use");
    std::vector<at::Tensor> sources;
    for (KeptTensor& source : sources_) sources.push_back(source.take());
    sources_.clear();
    const c10::AutoGradMode no_gradients(false);
    value_ = std::exchange(make_, nullptr)(sources);
    HEADROOM_CHECK(value_.sizes() == sizes_ && value_.strides() == strides_,
                   "a map was made again in another shape");
    return value_;
  }

 private:
  // The original map if its memory still exists, else an undefined tensor.
  at::Tensor original() const {
    c10::intrusive_ptr<c10::StorageImpl> memory = memory_.lock();
    if (!memory) return {};
    return at::empty({0}, options_)
        .set_(c10::Storage(std::move(memory)), offset_, sizes_, strides_);
  }

  const c10::weak_intrusive_ptr<c10::StorageImpl> memory_;
  const at::TensorOptions options_;
  const std::vector<int64_t> sizes_, strides_;
  const int64_t offset_;
  // Holds the sources until the derivation is first used; then they are moved
  // to sources_.
  std::vector<Source> unused_;
  std::vector<KeptTensor> sources_;
  MakeAgain make_;
  const DerivationCost cost_;
  int64_t uses_ = 0;
  at::Tensor value_;
};

namespace {

// Replaces the context of a storage's DataPtr; destroyed with the memory.
struct Tag {
  c10::DataPtr memory;
  std::shared_ptr<Derivation> derivation;
};

void delete_tag(void* tag) { delete static_cast<Tag*>(tag); }

// Returns the tensor's derivation, or nullptr if there is no usable one.
std::shared_ptr<Derivation> derivation_of(const at::Tensor& tensor,
                                          DerivationCost most) {
  if (!tensor.has_storage()) return nullptr;
  const Tag* tag = tensor.storage().data_ptr().cast_context<Tag>(&delete_tag);
  if (tag == nullptr || tag->derivation->cost() > most ||
      tag->derivation->is_spent() || !tag->derivation->describes(tensor)) {
    return nullptr;
  }
  return tag->derivation;
}

}  // namespace

KeptTensor::KeptTensor(std::shared_ptr<Derivation> derivation,
                       std::vector<int64_t> strides)
    : derivation_(std::move(derivation)), strides_(std::move(strides)) {
  derivation_->announce();
}

KeptTensor::~KeptTensor() {
  if (derivation_ != nullptr) derivation_->withdraw();
}

at::Tensor KeptTensor::take() {
  if (derivation_ == nullptr) return std::exchange(tensor_, at::Tensor());
  at::Tensor value = derivation_->value();
  std::exchange(derivation_, nullptr)->withdraw();
  // Operators derive the memory format of their result from the strides,
  // including those of axes with one element.
  return value.strides() == strides_
             ? value
             : value.as_strided(value.sizes(), strides_);
}

void set_derivation(const at::Tensor& map,
                    const std::vector<at::Tensor>& sources, MakeAgain make,
                    DerivationCost cost) {
  c10::StorageImpl* storage = map.storage().unsafeGetStorageImpl();
  HEADROOM_CHECK(storage->data_ptr().cast_context<Tag>(&delete_tag) == nullptr,
                 "a map has a derivation already");
  std::vector<Source> made_from;
  for (const at::Tensor& source : sources) {
    auto derivation = derivation_of(source, DerivationCost::kElementwise);
    if (derivation != nullptr) {
      made_from.push_back(
          {at::Tensor(), std::move(derivation), source.strides().vec()});
    } else {
      made_from.push_back({source.detach(), nullptr, {}});
    }
  }
  auto tag = std::make_unique<Tag>();
  tag->derivation = std::make_shared<Derivation>(map, std::move(made_from),
                                                 std::move(make), cost);
  const c10::Device device = map.device();
  tag->memory = storage->set_data_ptr(c10::DataPtr(nullptr, device));
  void* data = tag->memory.get();
  storage->set_data_ptr_noswap(
      c10::DataPtr(data, tag.release(), &delete_tag, device));
}

KeptTensor keep(const at::Tensor& tensor, DerivationCost most) {
  auto derivation = derivation_of(tensor, most);
  if (derivation != nullptr) {
    return KeptTensor(std::move(derivation), tensor.strides().vec());
  }
  return KeptTensor(tensor.detach());
}

}  // namespace headroom::activations
