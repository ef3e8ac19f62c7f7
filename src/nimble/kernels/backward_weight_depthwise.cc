#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/kernels/backward_weight.h"
#include "nimble/kernels/image_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/backward_weight_depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

// Vectors are of channels. The sums of some taps, usually all of them, are in registers while the
// pixels of a few images go by; at each, those taps count that lie inside of the image.
HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A pixel of grad_output, and what the first tap of its window would be in the input.
struct Pixel {
  int64_t grad_output;
  int64_t input;
  uint32_t inside;  // taps, as bits
};

struct TapsArguments {
  const float* input;  // of the first image, at the vector's first channel
  const float* grad_output;
  int64_t images;
  int64_t input_image;
  int64_t grad_output_image;
  const Pixel* pixels;  // of an image
  int64_t pixel_count;
  const int64_t* taps;  // from the first one
  float* sums;          // [tap][lane]
  int lanes;
  // What comes next, as far from here at every pixel, and which pixels of the input belong to one
  // of grad_output. Vectors of channels lie too far apart for a processor to fetch them by itself.
  int64_t next_grad_output;
  int64_t next_input;
  std::span<const int64_t> cell;
};
using TapsFunction = void (*)(const TapsArguments&);

template <int kTaps, class Lanes>
void sum_taps(const TapsArguments& a) {
  const FloatTag d;
  const Lanes lanes(a.lanes);
  constexpr uint32_t kAll = static_cast<uint32_t>((uint64_t{1} << kTaps) - 1);
  FloatVector sums[kTaps];
  for_each_constant<kTaps>(
      [&](auto t) NIMBLE_INLINE_LAMBDA { sums[t] = hn::Load(d, a.sums + t * kLanes); });
  std::array<int64_t, kTaps> taps;
  std::copy(a.taps, a.taps + kTaps, taps.begin());
  const Pixel* const end = a.pixels + a.pixel_count;
  for (int64_t n = 0; n < a.images; ++n) {
    const float* input = a.input + n * a.input_image;
    const float* grad_output = a.grad_output + n * a.grad_output_image;
    for (const Pixel* pixel = a.pixels; pixel < end; ++pixel) {
      const FloatVector value = in_register(lanes.load(grad_output + pixel->grad_output));
      const float* from = input + pixel->input;
      const uint32_t inside = pixel->inside;
      __builtin_prefetch(grad_output + pixel->grad_output + a.next_grad_output, 0, 2);
      for (int64_t at : a.cell) __builtin_prefetch(from + at + a.next_input, 0, 2);
      if (inside == kAll) {
        for_each_constant<kTaps>([&](auto t) NIMBLE_INLINE_LAMBDA {
          sums[t] = hn::MulAdd(value, lanes.load(from + taps[t]), sums[t]);
        });
      } else {
        for_each_constant<kTaps>([&](auto t) NIMBLE_INLINE_LAMBDA {
          if (inside & (uint32_t{1} << t))
            sums[t] = hn::MulAdd(value, lanes.load(from + taps[t]), sums[t]);
        });
      }
    }
  }
  for_each_constant<kTaps>(
      [&](auto t) NIMBLE_INLINE_LAMBDA { hn::Store(sums[t], d, a.sums + t * kLanes); });
}

// Taps of which the sums fit in the registers.
#if HWY_TARGET <= HWY_AVX3 && !defined(__SANITIZE_ADDRESS__)
constexpr int kTapCounts[] = {25, 9, 7, 5, 3, 2, 1};
#else
constexpr int kTapCounts[] = {9, 5, 3, 2, 1};
#endif

struct TapsFunctions {
  int taps;
  TapsFunction whole;
  TapsFunction partial;  // vector
};

template <int... kIndices>
constexpr std::array<TapsFunctions, sizeof...(kIndices)> make_functions(
    std::integer_sequence<int, kIndices...>) {
  return {TapsFunctions{kTapCounts[kIndices], sum_taps<kTapCounts[kIndices], AllLanes>,
                        sum_taps<kTapCounts[kIndices], SomeLanes>}...};
}
constexpr auto kFunctions =
    make_functions(std::make_integer_sequence<int, static_cast<int>(std::size(kTapCounts))>());

constexpr int64_t kBlockBytes = 256 << 10;  // of both images

class BackwardWeightDepthwise final : public Kernel {
 public:
  BackwardWeightDepthwise(const ConvolutionBackwardWeight& convolution,
                          std::span<const TensorDesc> operands)
      : convolution_(convolution),
        input_(operands[0]),
        output_(operands[1]),
        grad_output_(operands[1]),
        weight_(operands[2]) {
    if (convolution.bias) bias_ = operands[3];
    taps_ = weight_.sizes[2] * weight_.sizes[3];
    const int64_t image_bytes =
        4 * weight_.sizes[0] *
        (input_.height() * input_.width() + grad_output_.height() * grad_output_.width());
    block_ = std::max<int64_t>(kBlockBytes / std::max<int64_t>(image_bytes, 1), 1);
    for (int64_t y = 0; y < convolution.stride[0]; ++y)
      for (int64_t x = 0; x < convolution.stride[1]; ++x)
        cell_.push_back((convolution.padding[0] + y) * input_.row() +
                        (convolution.padding[1] + x) * input_.pixel());
    for (int64_t tap = 0; tap < taps_;) {
      const auto fits = [&](const TapsFunctions& f) { return f.taps <= taps_ - tap; };
      const auto found = std::find_if(kFunctions.begin(), kFunctions.end(), fits);
      add_group(tap, *found);
      tap += found->taps;
    }
  }

  std::string name() const override { return message("backward_weight depthwise ", kLanes); }
  Work work() const override { return {weight_.sizes[0], kLanes, 1, 0}; }
  size_t scratch_bytes(const Part& part) const override {
    const int64_t rows = (part.row_end - part.row_begin + kLanes - 1) / kLanes * kLanes;
    return static_cast<size_t>(rows * taps_) * sizeof(float);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    auto* sums = reinterpret_cast<float*>(arguments.scratch);  // [vector][tap][lane]
    const auto* grad_output = static_cast<const float*>(arguments.operands[1]);
    if (convolution_.bias)
      sum_bias(output_, grad_output, part.row_begin, part.row_end, bias_,
               static_cast<float*>(arguments.operands[3]), sums);
    std::fill(sums, sums + scratch_bytes(part) / sizeof(float), 0.0F);
    TapsArguments a{};
    a.input_image = input_.image();
    a.grad_output_image = grad_output_.image();
    // The next vector of all images, or the next images.
    const bool one_block = block_ >= grad_output_.batch();
    a.next_input = one_block ? kLanes : block_ * input_.image();
    a.next_grad_output = one_block ? kLanes : block_ * grad_output_.image();
    for (int64_t image = 0; image < grad_output_.batch(); image += block_) {
      a.images = std::min(block_, grad_output_.batch() - image);
      for (int64_t c = part.row_begin; c < part.row_end; c += kLanes) {
        a.lanes = static_cast<int>(std::min<int64_t>(part.row_end - c, kLanes));
        a.input = static_cast<const float*>(arguments.operands[0]) + image * input_.image() + c;
        a.grad_output = grad_output + image * grad_output_.image() + c;
        for (const TapGroup& group : groups_) {
          a.pixels = group.pixels.data();
          a.pixel_count = static_cast<int64_t>(group.pixels.size());
          a.taps = group.taps.data();
          a.sums = sums + (c - part.row_begin) * taps_ + group.first * kLanes;
          a.cell = group.first == 0 ? std::span<const int64_t>(cell_) : std::span<const int64_t>();
          (a.lanes < kLanes ? group.functions.partial : group.functions.whole)(a);
        }
      }
    }
    put(sums, part, static_cast<float*>(arguments.operands[2]));
  }

 private:
  struct TapGroup {
    int64_t first;
    TapsFunctions functions;
    std::vector<int64_t> taps;
    std::vector<Pixel> pixels;  // that see one of them
  };

  void add_group(int64_t first, const TapsFunctions& functions) {
    const auto& stride = convolution_.stride;
    const auto& padding = convolution_.padding;
    const auto& dilation = convolution_.dilation;
    TapGroup group{first, functions, {}, {}};
    const auto row_of = [&](int64_t tap) { return tap / weight_.sizes[3] * dilation[0]; };
    const auto column_of = [&](int64_t tap) { return tap % weight_.sizes[3] * dilation[1]; };
    for (int64_t tap = first; tap < first + functions.taps; ++tap)
      group.taps.push_back(row_of(tap) * input_.row() + column_of(tap) * input_.pixel());
    for (int64_t y = 0; y < grad_output_.height(); ++y)
      for (int64_t x = 0; x < grad_output_.width(); ++x) {
        const int64_t top = y * stride[0] - padding[0];
        const int64_t left = x * stride[1] - padding[1];
        uint32_t inside = 0;
        for (int64_t t = 0; t < functions.taps; ++t) {
          const int64_t iy = top + row_of(first + t);
          const int64_t ix = left + column_of(first + t);
          if (iy >= 0 && ix >= 0 && iy < input_.height() && ix < input_.width())
            inside |= uint32_t{1} << t;
        }
        if (inside != 0)
          group.pixels.push_back({y * grad_output_.row() + x * grad_output_.pixel(),
                                  top * input_.row() + left * input_.pixel(), inside});
      }
    groups_.push_back(std::move(group));
  }

  void put(const float* sums, const Part& part, float* result) const {
    const auto& s = weight_.strides;
    for (int64_t c = part.row_begin; c < part.row_end; ++c) {
      const int64_t row = c - part.row_begin;
      const float* from = sums + row / kLanes * kLanes * taps_ + row % kLanes;
      for (int64_t ky = 0; ky < weight_.sizes[2]; ++ky)
        for (int64_t kx = 0; kx < weight_.sizes[3]; ++kx, from += kLanes)
          result[c * s[0] + ky * s[2] + kx * s[3]] = *from;
    }
  }

  ConvolutionBackwardWeight convolution_;
  ImageRows input_;
  TensorDesc output_;
  ImageRows grad_output_;
  TensorDesc weight_;
  TensorDesc bias_;
  int64_t taps_ = 0;
  int64_t block_ = 1;  // images
  std::vector<TapGroup> groups_;
  std::vector<int64_t> cell_;  // the input's pixels that belong to an output's, from its first tap
};

KernelPtr make_kernel(const ConvolutionBackwardWeight& convolution,
                      std::span<const TensorDesc> operands) {
  return std::make_shared<BackwardWeightDepthwise>(convolution, operands);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_kernel);

KernelPtr make_backward_weight_depthwise(const ConvolutionBackwardWeight& convolution,
                                         std::span<const TensorDesc> operands) {
  return HWY_DYNAMIC_DISPATCH(make_kernel)(convolution, operands);
}

}  // namespace nimble
#endif
