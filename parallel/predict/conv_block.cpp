#include "parallel/predict/conv_block.h"

#include <utility>
#include <vector>

#include "parallel/predict/convolution.h"
#include "parallel/predict/halo.h"

namespace headroom::predict {
namespace {

struct Block {
  ConvolutionShape convolution;
  int64_t around = 0;  // rows of the halo
  Map x;               // without memory
  int64_t output_bytes = 0;
  int64_t norm_bytes = 0;  // of a parameter per channel
};

Graph::Outcome backward(const Pass& pass, const Block& block,
                        Gradient gradient) {
  Tape& tape = pass.tape;
  const Extents& extents = pass.extents;
  Graph::Outcome outcome;
  Memory dy = own(tape, gradient, block.output_bytes);
  gradient = {};
  outcome.parameters = {tape.allocate(block.norm_bytes),
                        tape.allocate(block.norm_bytes)};
  Memory joined;
  if (block.around > 0) joined = join_halo(pass, block.x, block.around);
  Memory dx;
  if (block.x.wants_gradient()) {
    dx = tape.allocate(joined != nullptr ? joined->bytes
                                         : pass.bytes_of(block.x));
    tape.touch(input_gradient_scratch(block.convolution, extents));
  }
  const Memory cast = cast_weight(pass, block.convolution);
  tape.touch(weight_gradient_bytes(block.convolution, extents));
  outcome.parameters.push_back(
      weight_gradient(tape, block.convolution, extents));
  joined.reset();
  if (block.around > 0 && dx != nullptr) {
    Memory cut = give_back_halo(pass, block.x, block.around);
    dx = std::move(cut);
  }
  outcome.inputs = {{std::move(dx), false}};
  return outcome;
}

void note_derivation(const Pass& pass, const Map& out, const Memory& y,
                     const Memory& statistics, int64_t norm_bytes) {
  if (pass.derive == Derive::kNothing) return;
  Tape& tape = pass.tape;
  set_derivation(
      out.memory, {y, statistics},
      [&tape, bytes = out.memory->bytes,
       affine = tape.allocate(2 * norm_bytes)](const std::vector<Memory>&) {
        return tape.allocate(bytes);
      });
}

}  // namespace

Map conv_block(const Pass& pass, const Map& x,
               const layers::RowProgram::Block& made) {
  const int64_t channels = made.channels;
  const int64_t stride = made.stride;
  Tape& tape = pass.tape;
  const Extents& extents = pass.extents;
  Block block;
  block.convolution = {x.channels,        channels, made.kernel, stride,
                       x.stride * stride, true,     made.groups};
  block.around = rows_around(extents, made.kernel, stride);
  block.x = {nullptr, x.channels, x.stride, x.node};
  block.norm_bytes = channels * extents.parameter_bytes();

  Memory halo, joined;
  if (block.around > 0) {
    halo = fetch_halo(pass, x, block.around);
    joined = join_halo(pass, x, block.around);
  }
  const Memory y = pass.allocate_map(channels, x.stride * stride);
  {
    const Memory cast = cast_weight(pass, block.convolution);
    tape.touch(forward_scratch(block.convolution, extents));
  }
  joined.reset();
  const auto count = [&] {
    return tape.allocate(2 * extents.groups * channels * kDoubleBytes);
  };
  const Memory statistics =
      pass.replay != nullptr ? pass.replay->once(count) : count();
  Map out = {pass.allocate_map(channels, x.stride * stride), channels,
             x.stride * stride};
  note_derivation(pass, out, y, statistics, block.norm_bytes);
  block.output_bytes = out.memory->bytes;

  std::vector<Memory> saved = {x.memory, y, statistics};
  if (halo != nullptr) saved.push_back(halo);
  Pass later = pass;
  later.replay = nullptr;
  out.node = pass.add({x}, saved, block.output_bytes, true,
                      [later, block](Gradient given) {
                        return backward(later, block, std::move(given));
                      });
  return out;
}

}  // namespace headroom::predict
