// Derivation: how to compute a map again when backward needs it, instead of
// keeping it. KeptTensor: how a saved-tensor policy keeps a tensor.
//
// Code that computes a cheap map registers its sources and a function that
// computes it again (set_derivation). The derivation is attached to the map's
// storage, so it is found wherever the map is saved, and is freed with it.
// keep() then refers to the derivation instead of holding the map:
//
//   y ──normalise, SiLU──▶ x ──┬─ saved by a convolution   keep(x): y
//                              └─ concat ──▶ saved by one  keep(c): y, ...
//
// A derived map is computed when its first user needs it, from sources that may
// themselves be derived, and released after its last use. If other code still
// keeps the original map, that map is used.
//
// One thread at a time: first forward, then backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace headroom::activations {

class Derivation;

// Keeps a tensor that is needed once more: holds the tensor itself, or counts
// as one use of the tensor's derivation.
class KeptTensor {
 public:
  explicit KeptTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  // `strides`: the strides of the kept tensor. They may differ from the derived
  // map's strides along axes with one element.
  KeptTensor(std::shared_ptr<Derivation> derivation,
             std::vector<int64_t> strides);
  KeptTensor(KeptTensor&&) = default;
  KeptTensor& operator=(KeptTensor&&) = delete;
  ~KeptTensor();

  // Returns the tensor, not tracked by autograd. REQUIRES: called once.
  at::Tensor take();

 private:
  at::Tensor tensor_;
  // nullptr if the tensor itself is kept
  std::shared_ptr<Derivation> derivation_;
  std::vector<int64_t> strides_;
};

// The cost of computing a map again. The caller of keep() passes the largest
// cost that it accepts, because avoiding a convolution is worth more memory
// than avoiding element-wise work.
enum class DerivationCost { kElementwise, kConvolution };

// Computes the map from its sources; called with gradient mode off.
using MakeAgain =
    std::function<at::Tensor(const std::vector<at::Tensor>& sources)>;

// Registers that `map` was computed from `sources` and that `make` computes the
// same bits again. A source with an element-wise derivation is not kept itself.
// REQUIRES: `map` alone covers its storage and has no derivation yet.
void set_derivation(const at::Tensor& map,
                    const std::vector<at::Tensor>& sources, MakeAgain make,
                    DerivationCost cost = DerivationCost::kElementwise);

// Refers to the tensor's derivation if there is one that costs at most `most`;
// else keeps the tensor (its memory only, no autograd graph).
KeptTensor keep(const at::Tensor& tensor,
                DerivationCost most = DerivationCost::kElementwise);

}  // namespace headroom::activations
