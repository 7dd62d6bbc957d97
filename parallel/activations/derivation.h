// Derivation: a map that is made again when backward needs it instead of being
// kept, and what a saved-tensor policy keeps of a tensor.
//
// Whoever makes a map that is cheap to make again says from what and how
// (set_derivation). That travels with the map's memory, so that it is found
// wherever the map is saved, and goes with it. keep() then holds a use of the
// derivation instead of the map:
//
//   y ──normalise, SiLU──▶ x ──┬─ saved by a convolution   keep(x): y
//                              └─ concat ──▶ saved by one  keep(c): y, ...
//
// A derived map is made when its first use asks for it, from sources that are
// made again in turn, and released after its last use. A map that somebody else
// still keeps is used as it is.
//
// One thread at a time uses it: forward, then backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace headroom::activations {

class Derivation;

// A tensor that will be needed once: itself, or a use of its derivation.
class KeptTensor {
 public:
  explicit KeptTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  // `strides`: of the tensor that is kept, where they may differ from those of
  // the map that was derived: along axes of one element.
  KeptTensor(std::shared_ptr<Derivation> derivation,
             std::vector<int64_t> strides);
  KeptTensor(KeptTensor&&) = default;
  KeptTensor& operator=(KeptTensor&&) = delete;
  ~KeptTensor();

  // Not tracked by autograd. REQUIRES: the first call.
  at::Tensor take();

 private:
  at::Tensor tensor_;
  std::shared_ptr<Derivation> derivation_;  // null: the tensor itself
  std::vector<int64_t> strides_;
};

// The work of making a map again. A convolution is worth memory that
// element-wise work is not, so whoever keeps a map says how far to go.
enum class DerivationCost { kElementwise, kConvolution };

// Makes the map from what it was made from; called without gradient mode.
using MakeAgain =
    std::function<at::Tensor(const std::vector<at::Tensor>& sources)>;

// `map` was made from `sources`, and `make` makes the same bits again. Sources
// that have an element-wise derivation are not kept for it.
// REQUIRES: a map that covers its storage alone and has no derivation yet.
void set_derivation(const at::Tensor& map,
                    const std::vector<at::Tensor>& sources, MakeAgain make,
                    DerivationCost cost = DerivationCost::kElementwise);

// A use of the tensor's derivation where it has one of at most this cost, else
// the tensor (its memory: no autograd graph is held).
KeptTensor keep(const at::Tensor& tensor,
                DerivationCost most = DerivationCost::kElementwise);

}  // namespace headroom::activations
