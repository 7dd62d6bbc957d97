#include "configs/layers/layer_modules.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "configs/layers/detect_branches.h"
#include "configs/layers/layer_widths.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/text.h"

namespace headroom::layers {
namespace {

using Block = LayerProgram::Block;

constexpr int kInput = 0;  // the value number of a layer's only input

// Builds the program of a module's layer.
class Composer {
 public:
  explicit Composer(const TableLayer& layer)
      : layer_(layer), activation_(layer.table().activation) {
    program_.inputs = layer.inputs();
  }

  // The inner widths of this layer. REQUIRES: its program has been built.
  const LayerWidths& widths() const { return widths_; }

  LayerProgram conv() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 5, "[channels, kernel, stride, padding, groups]");
    Block block = own_block();
    block.padding =
        layer_.integer(3, block.kernel / 2, 0, TableLayer::kMaxKernel);
    block.groups = layer_.integer(4, 1, 1, TableLayer::kMaxChannels);
    if (block.groups > 1 && block.groups == block.channels) {
      widths_.before = {static_cast<double>(block.kernel),
                        static_cast<double>(block.stride),
                        static_cast<double>(block.padding)};
      // In a depthwise convolution the argument `groups` is the width, because
      // it equals the channels.
      widths_.blocks = {block.name};
    }
    return one_block(std::move(block));
  }

  // As many groups as possible.
  LayerProgram dwconv() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 3, "[channels, kernel, stride]");
    Block block = own_block();
    block.groups = std::gcd(block.in_channels, block.channels);
    return one_block(std::move(block));
  }

  // Joins four neighbouring cells into one, then a convolution.
  LayerProgram focus() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 2, "[channels, kernel]");
    Block block = own_block();
    block.name = "conv.";
    block.in_channels *= 4;
    layer_.check_stride(2 * layer_.only_input().stride);
    check_division(block);
    const size_t own = program_.declare_conv(std::move(block));
    program_.run_block(own, program_.fold(kInput));
    return std::move(program_);
  }

  // A 1x1 and a 3x3 convolution; with a shortcut, plus the input. Repeated.
  LayerProgram bottlenecks() {
    const std::string form = "[channels] or [channels, False]";
    layer_.allow_arguments(1, 3, form);
    const int64_t channels = layer_.channels();
    const bool shortcut = layer_.truth(1, true, form);
    const int64_t repeats = layer_.repeats();
    const int64_t in = layer_.only_input().channels;
    const bool adds = shortcut && (in == channels || repeats > 1);
    std::vector<std::string> names, blocks;
    for (int64_t i = 0; i < repeats; ++i) {
      names.push_back(repeats == 1 ? "" : cat(i, "."));
      blocks.insert(blocks.end(),
                    {names.back() + "cv1.", names.back() + "cv2."});
    }
    blocks.pop_back();  // the last cv2 has `channels` outputs
    const auto rule = [&] {
      std::vector<int64_t> widths;
      for (int64_t i = 1; i < 2 * repeats; ++i)
        widths.push_back(i % 2 == 1 ? half_of(channels) : channels);
      return widths;
    };
    // Without a shortcut, write False. Otherwise the layer would get a shortcut
    // when pruning makes its input and output equal in channels.
    std::vector<int64_t> widths =
        listed_widths(adds, std::move(blocks), rule,
                      "[cv1 and cv2 of each, without the last cv2]");
    widths.push_back(channels);
    int x = kInput;
    for (size_t i = 0; i < names.size(); ++i) {
      if (shortcut && i > 0) check_sum(widths[2 * i + 1], x);
      x = bottleneck(names[i], x, widths[2 * i], widths[2 * i + 1], shortcut);
    }
    return std::move(program_);
  }

  // The layer's repeats are its bottlenecks.
  LayerProgram c3() {
    const std::string form =
        "[channels], [channels, False] or [channels, False, [cv1, cv2, "
        "m.0.cv1, m.0.cv2, ...]]";
    layer_.allow_arguments(1, 3, form);
    const bool shortcut = layer_.truth(1, true, form);
    std::vector<std::string> blocks = {"cv1.", "cv2."};
    for (int64_t i = 0; i < layer_.repeats(); ++i) {
      blocks.insert(blocks.end(),
                    {inner_name(i) + "cv1.", inner_name(i) + "cv2."});
    }
    const auto rule = [this, count = blocks.size()] {
      return std::vector<int64_t>(count, half_of(layer_.channels()));
    };
    const std::vector<int64_t> widths =
        listed_widths(shortcut, std::move(blocks), rule,
                      "[cv1, cv2, then two of each bottleneck]");
    size_t next = 2;
    return c3_of(widths[0], widths[1], widths.back(),
                 [&](const std::string& name, int x) {
                   next += 2;
                   if (shortcut) check_sum(widths[next - 1], x);
                   return bottleneck(name, x, widths[next - 2],
                                     widths[next - 1], shortcut);
                 });
  }

  // cv1 makes two halves. The second one goes through the bottlenecks, each of
  // two 3x3 convolutions, and cv2 joins both halves and the output of every
  // bottleneck. The layer's repeats are its bottlenecks.
  LayerProgram c2f() {
    const std::string form = "[channels] or [channels, True]";
    layer_.allow_arguments(1, 2, form);
    const bool shortcut = layer_.truth(1, false, form);
    const int64_t channels = layer_.channels();
    const int64_t half = half_of(channels);
    const int64_t repeats = layer_.repeats();
    const size_t cv1 = inner("cv1.", layer_.only_input().channels, 2 * half, 1);
    const size_t cv2 = inner("cv2.", (2 + repeats) * half, channels, 1);
    const int halves = program_.run_block(cv1, kInput);
    std::vector<int> joined = {halves};
    int x = program_.slice(halves, half, half);
    for (int64_t i = 0; i < repeats; ++i) {
      x = bottleneck(inner_name(i), x, half, half, shortcut,
                     /*first_kernel=*/3);
      joined.push_back(x);
    }
    program_.run_block(cv2, program_.concatenate(joined));
    return std::move(program_);
  }

  // Han et al., "GhostNet: More Features from Cheap Operations", 2020.
  LayerProgram ghost_conv() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 3, "[channels, kernel, stride]");
    const Block block = own_block();
    check_division(block);
    layer_.check_stride(layer_.only_input().stride * block.stride);
    ghost("", kInput, ghost_half(block.channels), block.kernel, block.stride,
          activation_);
    return std::move(program_);
  }

  // C3 of ghost bottlenecks. YOLOv5's shortcut argument has no effect here: a
  // ghost bottleneck always adds its input.
  LayerProgram c3_ghost() {
    const std::string form = "[channels] or [channels, False]";
    layer_.allow_arguments(1, 3, form);
    const bool shortcut = layer_.truth(1, true, form);
    std::vector<std::string> blocks = {"cv1.", "cv2."};
    for (int64_t i = 0; i < layer_.repeats(); ++i) {
      blocks.push_back(inner_name(i) + "conv.0.cv1.");
    }
    const auto rule = [this] {
      const int64_t half = half_of(layer_.channels());
      std::vector<int64_t> widths = {half, half};
      widths.resize(static_cast<size_t>(2 + layer_.repeats()),
                    ghost_half(half / 2));
      return widths;
    };
    const std::vector<int64_t> widths =
        listed_widths(shortcut, std::move(blocks), rule,
                      "[cv1, cv2, then conv.0.cv1 of each bottleneck]");
    size_t next = 2;
    return c3_of(
        widths[0], widths[1], widths[0], [&](const std::string& name, int x) {
          const int inner =
              ghost(name + "conv.0.", x, widths[next++], 1, 1, activation_);
          const int y = ghost(name + "conv.2.", inner, ghost_half(widths[0]), 1,
                              1, kIdentity);
          return program_.add(y, x);
        });
  }

  // Half the channels unchanged, the other half through 1x1, depthwise 3x3,
  // 1x1; then all are shuffled. With stride 2 both branches have convolutions
  // on all channels. Repeated. Ma et al., "ShuffleNet V2: Practical Guidelines
  // for Efficient CNN Architecture Design", 2018.
  LayerProgram shuffle_net() {
    layer_.allow_arguments(1, 2, "[channels, stride]");
    const int64_t channels = layer_.channels();
    const int64_t stride = layer_.integer(1, 1, 1, 2);
    const int64_t repeats = layer_.repeats();
    layer_.check_stride(layer_.only_input().stride * stride);
    if (channels % 2 != 0 || channels < 2)
      layer_.fail(cat("two halves of ", channels, " channels"),
                  "give it an even number");
    if (stride == 2 && repeats > 1)
      layer_.fail("a ShuffleNetV2 of stride 2 is repeated",
                  "write a layer of stride 2 and one of stride 1");
    if (stride == 1 && layer_.only_input().channels != channels)
      layer_.fail(cat("a ShuffleNetV2 of stride 1 makes ",
                      layer_.only_input().channels, " channels to ", channels),
                  "change their number with one of stride 2");
    int x = kInput;
    for (int64_t i = 0; i < repeats; ++i)
      x = shuffle_unit(repeats == 1 ? "" : cat(i, "."), x, channels / 2,
                       stride);
    return std::move(program_);
  }

  // 1x1 to `expanded` channels if the input has another number, depthwise
  // kernel, squeeze and excitation if SE, 1x1. Without NL, the activation is
  // the table's. Howard et al., "Searching for MobileNetV3", 2019.
  LayerProgram inverted_residual() {
    layer_.refuse_repeats();
    const std::string form =
        "[channels, expanded, kernel, stride, SE, NL], with SE True or False "
        "and NL RE or HS";
    layer_.allow_arguments(4, 6, form);
    const int64_t in = layer_.only_input().channels;
    const int64_t channels = layer_.channels(),
                  expanded = layer_.channels_at(1);
    widths_.blocks = {"depthwise."};
    Block cells = {"depthwise.", expanded, expanded};
    cells.kernel = layer_.integer(2, std::nullopt, 1, TableLayer::kMaxKernel);
    cells.stride = layer_.integer(3, std::nullopt, 1, 2);
    cells.padding = cells.kernel / 2;
    cells.groups = expanded;
    cells.activation = named_activation(5, form);
    check_division(cells);
    layer_.check_stride(layer_.only_input().stride * cells.stride);
    int x = kInput;
    if (expanded != in) {
      x = program_.run_block(program_.declare_conv({"expand.", in, expanded, 1,
                                                    1, 0, 1, cells.activation}),
                             x);
    }
    const int64_t stride = cells.stride;
    x = program_.run_block(program_.declare_conv(std::move(cells)), x);
    if (layer_.truth(4, false, form))
      x = squeeze_excite("se.", x, kSqueezeRatio);
    x = program_.run_block(
        program_.declare_conv(
            {"project.", expanded, channels, 1, 1, 0, 1, kIdentity}),
        x);
    if (stride == 1 && in == channels) program_.add(kInput, x);
    return std::move(program_);
  }

  // Hu et al., "Squeeze-and-Excitation Networks", 2018.
  LayerProgram squeeze_excitation() {
    layer_.refuse_repeats();
    layer_.allow_arguments(0, 1, "[ratio], usually [4]");
    layer_.only_input();
    squeeze_excite(
        "", kInput,
        layer_.integer(0, kSqueezeRatio, 1, TableLayer::kMaxChannels));
    return std::move(program_);
  }

  LayerProgram spp() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 3,
                           "[channels, windows] or [channels, windows, cv1], "
                           "with windows such as [5, 9, 13]");
    const std::vector<int64_t> windows =
        layer_.integers(1, {5, 9, 13}, 1, TableLayer::kMaxKernel);
    // A max-pool of window 9 equals two max-pools of window 5 in a row.
    std::vector<int64_t> chain;
    int64_t before = 1;
    for (const int64_t window : windows) {
      if (window % 2 == 0 || window <= before)
        layer_.fail(
            cat("a pooling window of ", window, " after one of ", before),
            "use odd ones that rise, usually [5, 9, 13]");
      chain.push_back(window - before + 1);
      before = window;
    }
    return pyramid(std::move(chain),
                   std::vector<double>(windows.begin(), windows.end()),
                   "channels, windows, cv1");
  }

  LayerProgram sppf() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 3,
                           "[channels, window] or [channels, window, cv1]");
    const int64_t window = layer_.integer(1, 5, 1, TableLayer::kMaxKernel);
    if (window % 2 == 0)
      layer_.fail(cat("a pooling window of ", window, " is even"),
                  "use an odd one, usually 5");
    return pyramid({window, window, window}, static_cast<double>(window),
                   "channels, window, cv1");
  }

  // A branch of a head without anchors (detect_branches.h).
  LayerProgram detect_branch() {
    const int64_t hidden =
        layer_.integer(0, std::nullopt, 1, TableLayer::kMaxChannels);
    const int64_t outputs =
        layer_.integer(1, std::nullopt, 1, TableLayer::kMaxChannels);
    const double bias = std::get<double>(layer_.layer().args.at(2));
    const size_t first = inner("0.", layer_.only_input().channels, hidden, 3);
    const size_t second = inner("1.", hidden, hidden, 3);
    const size_t last =
        program_.declare_output_conv("2.", hidden, outputs, bias);
    int x = program_.run_block(first, kInput);
    x = program_.run_block(second, x);
    program_.run_block(last, x);
    return std::move(program_);
  }

  LayerProgram upsample() {
    layer_.refuse_repeats();
    const std::string form = "[None, 2, nearest]";
    layer_.allow_arguments(3, 3, form);
    const std::string size = layer_.word(0);
    if ((size != "none" && size != "null" && size != "~") ||
        layer_.integer(1, std::nullopt, 1, TableLayer::kMaxStride) != 2 ||
        layer_.word(2) != "nearest")
      layer_.fail("only nearest upsampling by 2 is supported", "write " + form);
    check_halving();
    program_.upsample(kInput);
    return std::move(program_);
  }

  LayerProgram transposed() {
    layer_.refuse_repeats();
    const std::string form = "[channels, 2, 2]";
    layer_.allow_arguments(3, 4, form);
    Block block = own_block();
    if (block.kernel != 2 || block.stride != 2 ||
        layer_.integer(3, 0, 0, TableLayer::kMaxKernel) != 0)
      layer_.fail("only a kernel of 2 with stride 2 and padding 0 is supported",
                  "write " + form);
    check_halving();
    const size_t own = program_.declare_transposed_conv(std::move(block));
    program_.run_block(own, kInput);
    return std::move(program_);
  }

  LayerProgram concat() {
    layer_.refuse_repeats();
    layer_.allow_arguments(1, 1, "[1]");
    if (layer_.integer(0, std::nullopt, 0, 3) != 1)
      layer_.fail("Concat joins along channels only", "write [1]");
    const int64_t stride = layer_.inputs().front().stride;
    std::vector<int> values;
    int64_t channels = 0;
    for (const MapShape& input : layer_.inputs()) {
      channels += input.channels;
      if (channels > TableLayer::kMaxChannels)
        layer_.fail(
            cat("Concat joins maps to ", channels, " or more channels"),
            cat("at most ", TableLayer::kMaxChannels, " are supported"));
      if (input.stride != stride)
        layer_.fail(
            cat("Concat joins maps of stride ", stride, " and ", input.stride),
            "take maps of one stride");
      values.push_back(static_cast<int>(values.size()));
    }
    program_.concatenate(values);
    return std::move(program_);
  }

 private:
  static constexpr int64_t kSqueezeRatio = 4;

  // Reads an activation by its name in the paper; without a name, returns the
  // table's activation.
  ActivationFunction named_activation(size_t position,
                                      const std::string& form) const {
    const std::string name = layer_.word(position);
    if (name.empty()) return activation_;
    if (name == "re") return kRelu;
    if (name != "hs")
      layer_.fail("NL is " + name + ", neither RE (ReLU) nor HS (Hardswish)",
                  "write " + form);
    return {ActivationKind::kHardswish};
  }

  // The squeezed width is channels / ratio, rounded to a multiple of 8.
  // Rounding lowers it by at most a tenth, as in MobileNets.
  int squeeze_excite(const std::string& name, int x, int64_t ratio) {
    constexpr int64_t kMultiple = 8;
    const int64_t channels = channels_of(x);
    const int64_t share = channels / ratio;
    int64_t squeezed =
        std::max(kMultiple, (share + kMultiple / 2) / kMultiple * kMultiple);
    if (10 * squeezed < 9 * share) squeezed += kMultiple;
    return program_.run_block(
        program_.declare_squeeze_excite(name, channels, squeezed), x);
  }

  // A block from [channels, kernel, stride], padded by half the kernel.
  Block own_block() const {
    Block block;
    block.in_channels = layer_.only_input().channels;
    block.channels = layer_.channels();
    block.kernel = layer_.integer(1, 1, 1, TableLayer::kMaxKernel);
    block.stride = layer_.integer(2, 1, 1, TableLayer::kMaxKernel);
    block.padding = block.kernel / 2;
    block.activation = activation_;
    return block;
  }

  // Every layer must map a height of stride * n to exactly n; otherwise strides
  // would depend on the image.
  void check_division(const Block& block) const {
    const int64_t left = block.kernel - 2 * block.padding;
    if (left < 1 || left > block.stride)
      layer_.fail(cat("a kernel of ", block.kernel, " with stride ",
                      block.stride, " and padding ", block.padding,
                      " does not divide the map by the stride"),
                  "use a padding of half the kernel");
    if (block.in_channels % block.groups != 0 ||
        block.channels % block.groups != 0)
      layer_.fail(cat(block.groups, " groups do not divide ", block.in_channels,
                      " channels in and ", block.channels, " out"),
                  "use a number that divides both");
  }

  void check_halving() const {
    if (layer_.only_input().stride % 2 != 0)
      layer_.fail(cat("a map of stride ", layer_.only_input().stride,
                      " cannot be upsampled by 2"),
                  "upsample maps of an even stride");
  }

  LayerProgram one_block(Block block) {
    check_division(block);
    layer_.check_stride(layer_.only_input().stride * block.stride);
    const size_t own = program_.declare_conv(std::move(block));
    program_.run_block(own, kInput);
    return std::move(program_);
  }

  // A convolution of stride 1 inside a module.
  size_t inner(const std::string& name, int64_t in_channels, int64_t channels,
               int64_t kernel) {
    return program_.declare_conv(
        {name, in_channels, channels, kernel, 1, kernel / 2, 1, activation_});
  }
  int64_t half_of(int64_t channels) const {
    if (channels < 2)
      layer_.fail(cat("half of ", channels, " channels"), "use 2 or more");
    return channels / 2;
  }
  static std::string inner_name(int64_t bottleneck) {
    return cat("m.", bottleneck, ".");
  }
  int64_t channels_of(int value) const {
    return program_.shape_of(value).channels;
  }

  // Reads the widths listed after the shortcut argument.
  std::vector<int64_t> listed_widths(bool shortcut,
                                     std::vector<std::string> blocks,
                                     const LayerWidths::Rule& rule,
                                     const std::string& list) {
    widths_ = {.before = {std::string(shortcut ? "True" : "False")},
               .blocks = std::move(blocks),
               .is_list = true,
               .form = "channels, shortcut, " + list};
    return widths_.read(layer_, rule);
  }

  // Refuses widths with which a shortcut cannot be added.
  void check_sum(int64_t made, int x) const {
    if (made != channels_of(x))
      layer_.fail(cat("a bottleneck of ", layer_.layer().module, " gives ",
                      made, " channels, to be added to ", channels_of(x)),
                  "write the same width for cv1 and every second one of a "
                  "bottleneck, or False for the shortcut");
  }

  int bottleneck(const std::string& name, int x, int64_t hidden,
                 int64_t channels, bool shortcut, int64_t first_kernel = 1) {
    const size_t cv1 =
        inner(name + "cv1.", channels_of(x), hidden, first_kernel);
    const size_t cv2 = inner(name + "cv2.", hidden, channels, 3);
    const int y = program_.run_block(cv2, program_.run_block(cv1, x));
    return shortcut && channels_of(x) == channels ? program_.add(x, y) : y;
  }

  int64_t ghost_half(int64_t channels) const {
    if (channels < 2 || channels % 2 != 0)
      layer_.fail(cat("a ghost convolution to ", channels, " channels"),
                  "give it an even number");
    return channels / 2;
  }

  // A convolution makes half the channels; a depthwise convolution makes the
  // other half from the first half.
  int ghost(const std::string& name, int x, int64_t half, int64_t kernel,
            int64_t stride, const ActivationFunction& activation) {
    constexpr int64_t kCheapKernel = 5;
    const size_t cv1 =
        program_.declare_conv({name + "cv1.", channels_of(x), half, kernel,
                               stride, kernel / 2, 1, activation});
    const size_t cv2 =
        program_.declare_conv({name + "cv2.", half, half, kCheapKernel, 1,
                               kCheapKernel / 2, half, activation});
    const int y = program_.run_block(cv1, x);
    return program_.concatenate({y, program_.run_block(cv2, y)});
  }

  // A depthwise 3x3 convolution without activation.
  size_t depthwise(const std::string& name, int64_t channels, int64_t stride) {
    return program_.declare_conv(
        {name, channels, channels, 3, stride, 1, channels, kIdentity});
  }

  int shuffle_unit(const std::string& name, int x, int64_t half,
                   int64_t stride) {
    int left, right = x;
    if (stride == 1) {
      left = program_.slice(x, 0, half);
      right = program_.slice(x, half, half);
    } else {
      const size_t cells =
          depthwise(name + "branch1.0.", channels_of(x), stride);
      const size_t mix = inner(name + "branch1.1.", channels_of(x), half, 1);
      left = program_.run_block(mix, program_.run_block(cells, x));
    }
    const size_t before =
        inner(name + "branch2.0.", channels_of(right), half, 1);
    const size_t cells = depthwise(name + "branch2.1.", half, stride);
    const size_t after = inner(name + "branch2.2.", half, half, 1);
    right = program_.run_block(before, right);
    right = program_.run_block(cells, right);
    right = program_.run_block(after, right);
    return program_.shuffle(program_.concatenate({left, right}), 2);
  }

  // cv3(concat(m(cv1(x)), cv2(x))), where m is a chain of add_inner that ends
  // with `deepest` channels.
  template <typename AddInner>
  LayerProgram c3_of(int64_t first, int64_t beside, int64_t deepest,
                     const AddInner& add_inner) {
    const int64_t in = layer_.only_input().channels;
    const int64_t repeats = layer_.repeats();
    const size_t cv1 = inner("cv1.", in, first, 1);
    const size_t cv2 = inner("cv2.", in, beside, 1);
    const size_t cv3 = inner("cv3.", deepest + beside, layer_.channels(), 1);
    int deep = program_.run_block(cv1, kInput);
    for (int64_t i = 0; i < repeats; ++i) deep = add_inner(inner_name(i), deep);
    const int side = program_.run_block(cv2, kInput);
    program_.run_block(cv3, program_.concatenate({deep, side}));
    return std::move(program_);
  }

  // `window` is the layer's argument from which `windows` were read.
  LayerProgram pyramid(std::vector<int64_t> windows,
                       ModelTable::Argument window, const std::string& form) {
    const int64_t in = layer_.only_input().channels;
    const int64_t maps = static_cast<int64_t>(windows.size()) + 1;
    const int64_t channels = layer_.channels();
    widths_ = {.before = {std::move(window)}, .blocks = {"cv1."}, .form = form};
    const int64_t hidden =
        widths_.read(layer_, [&] { return std::vector{half_of(in)}; }).front();
    const size_t cv1 = inner("cv1.", in, hidden, 1);
    const size_t cv2 = inner("cv2.", maps * hidden, channels, 1);
    const int y = program_.run_block(cv1, kInput);
    program_.run_block(cv2, program_.pools(y, std::move(windows)));
    return std::move(program_);
  }

  const TableLayer& layer_;
  const ActivationFunction activation_;
  LayerProgram program_;
  LayerWidths widths_;
};

using Compose = LayerProgram (Composer::*)();
const std::map<std::string, Compose>& modules() {
  static const std::map<std::string, Compose> kModules = {
      {"Bottleneck", &Composer::bottlenecks},
      {"C2f", &Composer::c2f},
      {"C3", &Composer::c3},
      {"C3Ghost", &Composer::c3_ghost},
      {"Concat", &Composer::concat},
      {"Conv", &Composer::conv},
      {"DWConv", &Composer::dwconv},
      {"Focus", &Composer::focus},
      {"GhostConv", &Composer::ghost_conv},
      {"InvertedResidual", &Composer::inverted_residual},
      {"ShuffleNetV2", &Composer::shuffle_net},
      {"SPP", &Composer::spp},
      {"SPPF", &Composer::sppf},
      {"SqueezeExcitation", &Composer::squeeze_excitation},
      {"nn.ConvTranspose2d", &Composer::transposed},
      {"nn.Upsample", &Composer::upsample},
  };
  return kModules;
}

struct Composed {
  LayerProgram program;
  LayerWidths widths;
};
Composed compose(const TableLayer& layer) {
  const std::string& module = layer.layer().module;
  if (module == kBranchModule && !layer.layer().name.empty()) {
    return {Composer(layer).detect_branch(), {}};
  }
  const auto composes = modules().find(module);
  if (composes == modules().end()) {
    std::string known = kDetectModule;
    for (const auto& entry : modules()) known += ", " + entry.first;
    layer.fail("unknown module " + module, "use one of " + known);
  }
  Composer composer(layer);
  LayerProgram program = (composer.*composes->second)();
  LayerWidths widths = composer.widths();
  widths.repeats = static_cast<int>(layer.repeats());
  return {std::move(program), std::move(widths)};
}

}  // namespace

LayerProgram layer_program(const ModelTable& table, size_t index,
                           const std::vector<MapShape>& inputs,
                           int64_t num_classes) {
  return compose(TableLayer(table, index, inputs, num_classes)).program;
}

LayerWidths layer_widths(const ModelTable& table, size_t index,
                         const std::vector<MapShape>& inputs,
                         int64_t num_classes) {
  return compose(TableLayer(table, index, inputs, num_classes)).widths;
}

}  // namespace headroom::layers
