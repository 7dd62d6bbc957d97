// Maps that are made again when backward needs them: the rules of
// parallel/activations/derivation.h, on buffers.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parallel/predict/memory_timeline.h"

namespace headroom::predict {

// A buffer that will be wanted once: itself, or a use of its derivation.
class Kept {
 public:
  explicit Kept(Memory memory) : memory_(std::move(memory)) {}
  explicit Kept(std::shared_ptr<Derivation> derivation);
  Kept(Kept&&) = default;
  Kept& operator=(Kept&&) = delete;
  ~Kept();

  // REQUIRES: the first call.
  Memory take();

 private:
  Memory memory_;
  std::shared_ptr<Derivation> derivation_;  // null: the buffer itself
};

enum class Cost { kElementwise, kConvolution };

using MakeAgain = std::function<Memory(const std::vector<Memory>& sources)>;

// REQUIRES: `map` has no derivation yet.
void set_derivation(const Memory& map, const std::vector<Memory>& sources,
                    MakeAgain make, Cost cost = Cost::kElementwise);

// A use of its derivation where it has one of at most this cost, else itself.
Kept keep(const Memory& memory, Cost most = Cost::kElementwise);

}  // namespace headroom::predict
