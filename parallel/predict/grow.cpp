#include "parallel/predict/grow.h"

#include <utility>

#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

Graph::Outcome backward(const Pass& pass, const ConvolutionShape& shape,
                        const Map& x, int64_t channels) {
  Tape& tape = pass.tape;
  const Extents& extents = pass.extents;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {tape.allocate(channels * extents.parameter_bytes())};
  {
    const Memory cells = pass.allocate_map(shape.out_channels, x.stride);
    const Memory cast = cast_weight(pass, shape);
    const Memory weight = tape.allocate(shape.weight_bytes(extents));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory = pass.allocate_map(x.channels, x.stride);
      tape.touch(input_gradient_scratch(shape, extents));
    }
    tape.touch(weight_gradient_bytes(shape, extents));
  }
  outcome.parameters.push_back(weight_gradient(tape, shape, extents));
  return outcome;
}

}  // namespace

Map grow(const Pass& pass, const Map& x,
         const layers::RowProgram::Block& made) {
  Tape& tape = pass.tape;
  const int64_t cells = made.kernel * made.kernel;
  const ConvolutionShape shape = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped = pass.allocate_map(shape.out_channels, x.stride);
    {
      const Memory cast = cast_weight(pass, shape);
      const Memory weight = tape.allocate(shape.weight_bytes(pass.extents));
      tape.touch(forward_scratch(shape, pass.extents));
    }
    out.memory = pass.allocate_map(made.channels, stride);
  }
  Pass later = pass;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node = pass.add({x}, {x.memory}, out.memory->bytes, true,
                      [later, shape, plain, made](Gradient gradient) {
                        Graph::Outcome outcome =
                            backward(later, shape, plain, made.channels);
                        static_cast<void>(gradient);
                        return outcome;
                      });
  return out;
}

}  // namespace headroom::predict
