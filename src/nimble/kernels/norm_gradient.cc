// Long because it is two kernels, and the matcher that finds their chains.
#include "nimble/kernels/norm_gradient.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "nimble/kernels/column_sums.h"
#include "nimble/kernels/loop_nest.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/norm_gradient.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/activation_gradient-inl.h"
#include "nimble/kernels/lanes-inl.h"

#ifndef NIMBLE_NORM_GRADIENT_TYPES_
#define NIMBLE_NORM_GRADIENT_TYPES_
namespace nimble {
namespace {

// What the activation was computed from.
enum class Source { kNothing, kImage, kInput };

// Pixels that follow each other at fixed distances.
struct PixelTile {
  const float* gradient;
  const float* input;
  const float* made;  // of Source::kImage
  float* output;      // may be null for sums
  int64_t gradient_pixel;
  int64_t input_pixel;
  int64_t made_pixel;
  int64_t output_pixel;
  int64_t pixels;
  int64_t channels;
  // Vectors of channels; the first two of Source::kInput, the last three not of sums.
  const float* scale;
  const float* shift;
  const float* mean;
  const float* k;
  const float* a;
  const float* c;
  Activation activation;
};
using GradientFunction = void (*)(const PixelTile&);
using SumsFunction = void (*)(const PixelTile&, double* sums, double* products);

}  // namespace
}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

constexpr int64_t kPixels = 4;  // at once: vectors of channels are loaded once for them
constexpr int64_t kChunk = 16;  // pixels that are summed up as floats before they go into doubles

// The gradient behind the activation at one pixel.
template <ActivationKind kKind, Source kSource, class Lanes>
HWY_INLINE FloatVector through(const PixelTile& t, const Lanes& lanes, int64_t pixel, int64_t c,
                               FloatVector input, FloatVector scale, FloatVector shift) {
  const FloatTag d;
  const FloatVector gradient = lanes.load(t.gradient + pixel * t.gradient_pixel + c);
  if constexpr (kSource == Source::kNothing) {
    return gradient;
  } else {
    const FloatVector made = kSource == Source::kInput
                                 ? hn::MulAdd(input, scale, shift)
                                 : lanes.load(t.made + pixel * t.made_pixel + c);
    return activation_gradient<kKind>(d, gradient, made, hn::Set(d, t.activation.a),
                                      hn::Set(d, t.activation.b));
  }
}

template <ActivationKind kKind, Source kSource, int kCount, class Lanes>
HWY_INLINE void gradient_of_pixels(const PixelTile& t, const Lanes& lanes, int64_t pixel,
                                   int64_t c) {
  const FloatTag d;
  const FloatVector none = hn::Zero(d);
  const FloatVector scale = kSource == Source::kInput ? lanes.load(t.scale + c) : none;
  const FloatVector shift = kSource == Source::kInput ? lanes.load(t.shift + c) : none;
  const FloatVector mean = lanes.load(t.mean + c);
  const FloatVector k = lanes.load(t.k + c);
  const FloatVector a = lanes.load(t.a + c);
  const FloatVector last = lanes.load(t.c + c);
  for_each_constant<kCount>([&](auto i) NIMBLE_INLINE_LAMBDA {
    const int64_t at = pixel + i;
    const FloatVector input = lanes.load(t.input + at * t.input_pixel + c);
    const FloatVector g = through<kKind, kSource>(t, lanes, at, c, input, scale, shift);
    const FloatVector sum = hn::MulAdd(hn::Sub(input, mean), k, g);
    lanes.store(hn::MulAdd(sum, a, last), t.output + at * t.output_pixel + c);
  });
}

template <ActivationKind kKind, Source kSource, int kCount>
HWY_INLINE void gradient_of_rows(const PixelTile& t, int64_t pixel) {
  int64_t c = 0;
  for (; c + kLanes <= t.channels; c += kLanes)
    gradient_of_pixels<kKind, kSource, kCount>(t, AllLanes(kLanes), pixel, c);
  if (c == t.channels) return;
  const SomeLanes lanes(static_cast<int>(t.channels - c));
  gradient_of_pixels<kKind, kSource, kCount>(t, lanes, pixel, c);
}

template <ActivationKind kKind, Source kSource>
void gradient_of_tile(const PixelTile& t) {
  int64_t pixel = 0;
  for (; pixel + kPixels <= t.pixels; pixel += kPixels)
    gradient_of_rows<kKind, kSource, kPixels>(t, pixel);
  for (; pixel < t.pixels; ++pixel) gradient_of_rows<kKind, kSource, 1>(t, pixel);
}

// Of one vector of channels of [begin, end), as floats.
template <ActivationKind kKind, Source kSource, class Lanes>
HWY_INLINE void sum_pixels(const PixelTile& t, const Lanes& lanes, int64_t begin, int64_t end,
                           int64_t c, FloatVector& sum, FloatVector& product) {
  const FloatTag d;
  const FloatVector none = hn::Zero(d);
  const FloatVector scale = kSource == Source::kInput ? lanes.load(t.scale + c) : none;
  const FloatVector shift = kSource == Source::kInput ? lanes.load(t.shift + c) : none;
  const FloatVector mean = lanes.load(t.mean + c);
  FloatVector sums[2] = {none, none};  // two of each, as an addition takes a while
  FloatVector products[2] = {none, none};
  const auto add = [&](int which, int64_t pixel) NIMBLE_INLINE_LAMBDA {
    const FloatVector input = lanes.load(t.input + pixel * t.input_pixel + c);
    const FloatVector g = through<kKind, kSource>(t, lanes, pixel, c, input, scale, shift);
    sums[which] = hn::Add(sums[which], g);
    products[which] = hn::MulAdd(hn::Sub(input, mean), g, products[which]);
    if (t.output != nullptr) lanes.store(g, t.output + pixel * t.output_pixel + c);
  };
  int64_t pixel = begin;
  for (; pixel + 2 <= end; pixel += 2) {
    add(0, pixel);
    add(1, pixel + 1);
  }
  if (pixel < end) add(0, pixel);
  sum = hn::Add(sums[0], sums[1]);
  product = hn::Add(products[0], products[1]);
}

HWY_INLINE void add_to(double* totals, FloatVector value, int64_t count) {
  const FloatTag d;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, d, lanes);
  for (int64_t i = 0; i < count; ++i) totals[i] += static_cast<double>(lanes[i]);
}

template <ActivationKind kKind, Source kSource>
void sums_of_tile(const PixelTile& t, double* sums, double* products) {
  for (int64_t begin = 0; begin < t.pixels; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, t.pixels);
    FloatVector sum;
    FloatVector product;
    int64_t c = 0;
    for (; c + kLanes <= t.channels; c += kLanes) {
      sum_pixels<kKind, kSource>(t, AllLanes(kLanes), begin, end, c, sum, product);
      add_to(sums + c, sum, kLanes);
      add_to(products + c, product, kLanes);
    }
    if (c == t.channels) continue;
    const int64_t left = t.channels - c;
    sum_pixels<kKind, kSource>(t, SomeLanes(static_cast<int>(left)), begin, end, c, sum, product);
    add_to(sums + c, sum, left);
    add_to(products + c, product, left);
  }
}

template <Source kSource>
GradientFunction gradient_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kRelu:
      return gradient_of_tile<ActivationKind::kRelu, kSource>;
    case ActivationKind::kClamp:
      return gradient_of_tile<ActivationKind::kClamp, kSource>;
    default:
      return nullptr;
  }
}

template <Source kSource>
SumsFunction sums_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kRelu:
      return sums_of_tile<ActivationKind::kRelu, kSource>;
    case ActivationKind::kClamp:
      return sums_of_tile<ActivationKind::kClamp, kSource>;
    case ActivationKind::kHardSwish:
      return sums_of_tile<ActivationKind::kHardSwish, kSource>;
    case ActivationKind::kSilu:
      return sums_of_tile<ActivationKind::kSilu, kSource>;
    default:
      return nullptr;
  }
}

GradientFunction gradient_function(ActivationKind kind, Source source) {
  if (source == Source::kNothing) return gradient_of_tile<ActivationKind::kNone, Source::kNothing>;
  return source == Source::kImage ? gradient_of<Source::kImage>(kind)
                                  : gradient_of<Source::kInput>(kind);
}

SumsFunction sums_function(ActivationKind kind, Source source) {
  if (source == Source::kNothing) return sums_of_tile<ActivationKind::kNone, Source::kNothing>;
  return source == Source::kImage ? sums_of<Source::kImage>(kind) : sums_of<Source::kInput>(kind);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
namespace {

HWY_EXPORT(gradient_function);
HWY_EXPORT(sums_function);

// Which operand is what; -1: there is none.
struct Roles {
  Activation activation = {ActivationKind::kNone};
  Source source = Source::kNothing;
  int gradient = -1;
  int input = -1;
  int made = -1;
  int scale = -1;
  int shift = -1;
  int mean = -1;
  int k = -1;
  int a = -1;
  int c = -1;
  int through = -1;  // the register of the gradient behind the activation
};

class Matcher {
 public:
  explicit Matcher(const Chain& chain) : chain_(chain) {}

  // The result of the chain; none if it is another.
  std::optional<Roles> gradient() {
    if (chain_.outputs.size() != 1) return std::nullopt;
    const ChainStep* last = step(chain_.outputs[0], ChainOp::kMulAdd);
    const ChainStep* sum = last ? step(last->x, ChainOp::kMulAdd) : nullptr;
    if (!sum || !match_distance(sum->x) || !match_through(sum->z)) return std::nullopt;
    roles_.k = sum->y;
    roles_.a = last->y;
    roles_.c = last->z;
    return finished();
  }

  std::optional<Roles> sums(const std::vector<int>& sums) {
    if (sums.size() != 2 || chain_.outputs.size() > 1) return std::nullopt;
    const ChainStep* product = step(sums[1], ChainOp::kMul);
    if (!product) return std::nullopt;
    const int distance = product->x == sums[0] ? product->y : product->x;
    if ((product->x != sums[0] && product->y != sums[0]) || !match_distance(distance) ||
        !match_through(sums[0]))
      return std::nullopt;
    if (!chain_.outputs.empty() && chain_.outputs[0] != sums[0]) return std::nullopt;
    return finished();
  }

 private:
  bool is_input(int value) const { return value >= 0 && value < chain_.inputs; }
  const ChainStep* any_step(int value) {
    if (value < chain_.inputs) return nullptr;
    const auto index = static_cast<size_t>(value - chain_.inputs);
    used_[index] = true;
    return &chain_.steps[index];
  }
  const ChainStep* step(int value, ChainOp op) {
    const ChainStep* found = any_step(value);
    return found && found->op == op ? found : nullptr;
  }

  bool match_distance(int value) {
    const ChainStep* difference = step(value, ChainOp::kSub);
    if (!difference) return false;
    roles_.input = difference->x;
    roles_.mean = difference->y;
    return true;
  }

  bool match_through(int value) {
    roles_.through = value;
    if (is_input(value)) {
      roles_.gradient = value;
      return true;
    }
    const ChainStep* through = step(value, ChainOp::kActivationGradient);
    if (!through) return false;
    roles_.activation = through->activation;
    roles_.gradient = through->x;
    if (is_input(through->y)) {
      roles_.source = Source::kImage;
      roles_.made = through->y;
      return true;
    }
    const ChainStep* made = any_step(through->y);
    const bool clamps = through->activation.kind == ActivationKind::kRelu ||
                        through->activation.kind == ActivationKind::kClamp;
    // Where a clamp cuts off, its result says as much as its input.
    if (made->op == ChainOp::kActivation && clamps && made->activation == through->activation)
      made = any_step(made->x);
    if (!made || made->op != ChainOp::kMulAdd || made->x != roles_.input) return false;
    roles_.source = Source::kInput;
    roles_.scale = made->y;
    roles_.shift = made->z;
    return true;
  }

  std::optional<Roles> finished() const {
    for (size_t i = 0; i < chain_.steps.size(); ++i)
      if (!used_[i]) return std::nullopt;
    return roles_;
  }

  const Chain& chain_;
  Roles roles_;
  std::vector<bool> used_ = std::vector<bool>(chain_.steps.size());
};

bool is_channel_vector(const TensorDesc& desc) {
  if (desc.sizes.size() != 4 || (desc.sizes[1] > 1 && desc.strides[1] != 1)) return false;
  for (size_t d : {0, 2, 3})
    if (desc.sizes[d] > 1 && desc.strides[d] != 0) return false;
  return true;
}

// Whether all that should be images and vectors are, of the first operands.
bool lie_so(const Roles& roles, std::span<const TensorDesc> operands, int inputs,
            const LoopNest& nest, bool has_factors) {
  const auto is_input = [&](int i) { return i >= 0 && i < inputs; };
  const auto is_image = [&](int i) {
    return is_input(i) && nest.run_stride(static_cast<size_t>(i)) == 1 &&
           !is_channel_vector(operands[static_cast<size_t>(i)]);
  };
  const auto is_vector = [&](int i) {
    return is_input(i) && is_channel_vector(operands[static_cast<size_t>(i)]);
  };
  if (!is_image(roles.gradient) || !is_image(roles.input)) return false;
  if (roles.source == Source::kImage && !is_image(roles.made)) return false;
  if (roles.source == Source::kInput && !(is_vector(roles.scale) && is_vector(roles.shift)))
    return false;
  if (has_factors && !(is_vector(roles.k) && is_vector(roles.a) && is_vector(roles.c)))
    return false;
  return is_vector(roles.mean) && !nest.cuts_runs() && nest.run() == operands[0].sizes[1];
}

// Fills in what is the same for all tiles, and hands them on.
class Tiles {
 public:
  Tiles(Roles roles, LoopNest nest, int output)
      : roles_(roles), nest_(std::move(nest)), output_(output) {}

  const LoopNest& nest() const { return nest_; }

  template <class Visit>
  void for_each(void* const* operands, int64_t begin, int64_t end, const Visit& visit) const {
    const auto data = [&](int i) { return i < 0 ? nullptr : static_cast<float*>(operands[i]); };
    const auto pixel = [&](int i) { return i < 0 ? 0 : nest_.row_stride(static_cast<size_t>(i)); };
    PixelTile tile{.gradient_pixel = pixel(roles_.gradient),
                   .input_pixel = pixel(roles_.input),
                   .made_pixel = pixel(roles_.made),
                   .output_pixel = pixel(output_),
                   .channels = nest_.run(),
                   .scale = data(roles_.scale),
                   .shift = data(roles_.shift),
                   .mean = data(roles_.mean),
                   .k = data(roles_.k),
                   .a = data(roles_.a),
                   .c = data(roles_.c),
                   .activation = roles_.activation};
    nest_.for_each_tile(begin, end, [&](const LoopNest::Tile& at) {
      const auto moved = [&](int i) {
        return i < 0 ? nullptr : data(i) + at.offsets[static_cast<size_t>(i)];
      };
      tile.gradient = moved(roles_.gradient);
      tile.input = moved(roles_.input);
      tile.made = moved(roles_.made);
      tile.output = moved(output_);
      tile.pixels = at.rows;
      visit(tile);
    });
  }

 private:
  Roles roles_;
  LoopNest nest_;
  int output_;
};

class NormGradient final : public Kernel {
 public:
  NormGradient(Tiles tiles, GradientFunction function)
      : tiles_(std::move(tiles)), function_(function) {}

  std::string name() const override { return "chain.norm_gradient"; }
  Work work() const override {
    if (tiles_.nest().rows() == 0) return {0, 0, 0, 0};
    return {tiles_.nest().rows(), 1, 1, 0};
  }
  void run(const KernelArguments& arguments) const override {
    tiles_.for_each(arguments.operands, arguments.part.row_begin, arguments.part.row_end,
                    function_);
  }

 private:
  Tiles tiles_;
  GradientFunction function_;
};

class NormGradientSums final : public Kernel {
 public:
  NormGradientSums(Tiles tiles, SumsFunction function, const TensorDesc& sums, size_t first_sum)
      : tiles_(std::move(tiles)),
        function_(function),
        blocks_(sums.sizes[0]),
        channels_(sums.sizes[1]),
        first_sum_(first_sum) {}

  std::string name() const override { return "chain_sums.norm_gradient"; }
  Work work() const override { return {blocks_, blocks_ > 1 ? 1 : 0, 1, 0}; }
  size_t scratch_bytes(const Part&) const override {
    return 2 * static_cast<size_t>(channels_) * sizeof(double);
  }
  void run(const KernelArguments& arguments) const override {
    auto* totals = reinterpret_cast<double*>(arguments.scratch);
    for (int64_t b = arguments.part.row_begin; b < arguments.part.row_end; ++b) {
      std::fill_n(totals, 2 * channels_, 0.0);
      const BlockRows rows = rows_of_block(tiles_.nest().rows(), b, blocks_);
      tiles_.for_each(arguments.operands, rows.begin, rows.end,
                      [&](const PixelTile& tile) { function_(tile, totals, totals + channels_); });
      for (size_t s : {0, 1}) {
        float* to = static_cast<float*>(arguments.operands[first_sum_ + s]) + b * channels_;
        for (int64_t c = 0; c < channels_; ++c)
          to[c] = static_cast<float>(totals[static_cast<int64_t>(s) * channels_ + c]);
      }
    }
  }

 private:
  Tiles tiles_;
  SumsFunction function_;
  int64_t blocks_;
  int64_t channels_;
  size_t first_sum_;
};

}  // namespace

KernelPtr make_norm_gradient(const Chain& chain, std::span<const TensorDesc> operands) {
  const std::optional<Roles> roles = Matcher(chain).gradient();
  if (!roles || operands[0].sizes.size() != 4) return nullptr;
  auto nest = LoopNest::make(operands, static_cast<size_t>(chain.inputs));
  if (!nest || !lie_so(*roles, operands, chain.inputs, *nest, true)) return nullptr;
  if (nest->run_stride(operands.size() - 1) != 1) return nullptr;
  const auto function =
      HWY_DYNAMIC_DISPATCH(gradient_function)(roles->activation.kind, roles->source);
  if (!function) return nullptr;
  return std::make_shared<NormGradient>(Tiles(*roles, *std::move(nest), chain.inputs), function);
}

KernelPtr make_norm_gradient_sums(const ChainSums& sums, std::span<const TensorDesc> operands) {
  const std::optional<Roles> roles = Matcher(sums.chain).sums(sums.sums);
  if (!roles || operands[0].sizes.size() != 4) return nullptr;
  const size_t outputs = sums.chain.outputs.size();
  const auto images = operands.first(static_cast<size_t>(sums.chain.inputs) + outputs);
  auto nest = LoopNest::make_by_channels(images);
  if (!nest || !lie_so(*roles, images, sums.chain.inputs, *nest, false)) return nullptr;
  if (outputs > 0 && nest->run_stride(images.size() - 1) != 1) return nullptr;
  const auto function = HWY_DYNAMIC_DISPATCH(sums_function)(roles->activation.kind, roles->source);
  if (!function) return nullptr;
  return std::make_shared<NormGradientSums>(
      Tiles(*roles, *std::move(nest), outputs > 0 ? sums.chain.inputs : -1), function,
      operands.back(), images.size());
}

}  // namespace nimble
#endif
