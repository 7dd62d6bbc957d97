#include "parallel/predict/excite.h"

#include <algorithm>
#include <utility>

#include "parallel/base/cell_sum_copies.h"

namespace headroom::predict {
namespace {

// What a device adds in float64 while it sums cells: copies of some samples, of
// a map or of the product of two.
int64_t copied_bytes(const Extents& extents, const Map& x, bool is_product) {
  const bool is_double = extents.element_bytes == kDoubleBytes;
  if (!extents.on_device || extents.samples == 0 || (is_double && !is_product))
    return 0;
  const int64_t of_a_sample =
      extents.cells(x.stride) / extents.samples * x.channels;
  return std::min(extents.samples, samples_summed_at_once(of_a_sample)) *
         of_a_sample * kDoubleBytes;
}

Graph::Outcome backward(const Pass& pass, const Map& x, int64_t squeezed) {
  Tape& tape = pass.tape;
  const int64_t samples = pass.extents.samples;
  const int64_t bytes = pass.extents.parameter_bytes();
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  // Sums in double, their copy in the parameters' type, two masks.
  const Memory dz = tape.allocate(samples * x.channels * bytes);
  tape.touch(samples * x.channels * (kDoubleBytes + 2) +
             copied_bytes(pass.extents, x, /*is_product=*/true));
  const Memory dhidden = tape.allocate(samples * squeezed * bytes);
  tape.touch(samples * squeezed);
  for (const int64_t count :
       {x.channels * squeezed, squeezed, x.channels * squeezed, x.channels}) {
    outcome.parameters.push_back(tape.allocate(count * bytes));
  }
  if (x.wants_gradient()) {
    const Memory dmeans = tape.allocate(samples * x.channels * kDoubleBytes);
    // Of the map's type, with the factors.
    const Memory spread = tape.allocate(2 * samples * x.channels * bytes);
    outcome.inputs.front().memory = pass.allocate_map(x.channels, x.stride);
  }
  return outcome;
}

}  // namespace

Map excite(const Pass& pass, const Map& x,
           const layers::RowProgram::Block& made) {
  Tape& tape = pass.tape;
  const int64_t samples = pass.extents.samples;
  const int64_t bytes = pass.extents.parameter_bytes();
  const auto sum = [&] {
    tape.touch(copied_bytes(pass.extents, x, /*is_product=*/false));
    return tape.allocate(samples * x.channels * kDoubleBytes);
  };
  const Memory sums = pass.replay != nullptr ? pass.replay->once(sum) : sum();
  tape.touch(sums->bytes + samples * x.channels * bytes);
  const Memory means = tape.allocate(samples * x.channels * bytes);
  const Memory hidden = tape.allocate(samples * made.squeezed * bytes);
  const Memory gate = tape.allocate(samples * x.channels * bytes);
  const Memory spread =
      pass.extents.is_mixed()
          ? tape.allocate(samples * x.channels * pass.extents.element_bytes)
          : gate;
  Map out = {pass.allocate_map(x.channels, x.stride), x.channels, x.stride};
  if (pass.derive != Derive::kNothing) {
    set_derivation(
        out.memory, {x.memory, spread},
        [&tape, size = out.memory->bytes](const std::vector<Memory>&) {
          return tape.allocate(size);
        });
  }
  Pass later = pass;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node =
      pass.add({x}, {x.memory, means, hidden, gate}, out.memory->bytes, true,
               [later, plain, squeezed = made.squeezed](Gradient given) {
                 Graph::Outcome outcome = backward(later, plain, squeezed);
                 static_cast<void>(given);
                 return outcome;
               });
  return out;
}

}  // namespace headroom::predict
