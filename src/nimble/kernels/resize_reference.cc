#include <algorithm>
#include <cmath>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::image;

KernelCase make_case(const Resize& resize, int64_t batch, int64_t channels, int64_t height,
                     int64_t width, int64_t output_height, int64_t output_width,
                     int64_t pixel_padding = 0) {
  const int64_t pixel = channels + pixel_padding;
  return {resize,
          {image(batch, channels, height, width, pixel),
           image(batch, channels, output_height, output_width, pixel)}};
}

// The position of an output pixel in the input; single precision, as the framework has it.
float source_position(const Resize& resize, int dim, int64_t input, int64_t output, int64_t index) {
  const float step = resize.scale[dim] > 0 ? static_cast<float>(resize.scale[dim])
                                           : static_cast<float>(input) / static_cast<float>(output);
  const float at = static_cast<float>(index);
  if (resize.kind == Resize::Kind::kNearest) return at * step;
  if (!resize.align_corners) return std::max(std::fma(step, at + 0.5f, -0.5f), 0.0f);
  if (output == 1) return 0;
  return at * (static_cast<float>(input - 1) / static_cast<float>(output - 1));
}

}  // namespace

void resize_reference(const Resize& resize, std::span<const TensorDesc> operands,
                      void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  for (int64_t n = 0; n < output.sizes[0]; ++n)
    for (int64_t c = 0; c < output.sizes[1]; ++c)
      for (int64_t y = 0; y < output.sizes[2]; ++y)
        for (int64_t x = 0; x < output.sizes[3]; ++x) {
          const float* from =
              static_cast<const float*>(data[0]) + n * input.strides[0] + c * input.strides[1];
          int64_t near[2], far[2];
          float share[2];
          for (int d = 0; d < 2; ++d) {
            const int64_t size = input.sizes[d + 2];
            const float at = source_position(resize, d, size, output.sizes[d + 2], d == 0 ? y : x);
            near[d] = std::min(static_cast<int64_t>(at), size - 1);
            far[d] = std::min(near[d] + 1, size - 1);
            share[d] = resize.kind == Resize::Kind::kNearest
                           ? 0.0f
                           : std::clamp(at - static_cast<float>(near[d]), 0.0f, 1.0f);
          }
          const auto pixel = [&](int64_t i, int64_t j) {
            return static_cast<double>(from[i * input.strides[2] + j * input.strides[3]]);
          };
          const auto mix = [&](double a, double b, float part) {
            if (resize.kind == Resize::Kind::kNearest) return a;
            return (1 - static_cast<double>(part)) * a + part * b;
          };
          const double value =
              mix(mix(pixel(near[0], near[1]), pixel(near[0], far[1]), share[1]),
                  mix(pixel(far[0], near[1]), pixel(far[0], far[1]), share[1]), share[0]);
          static_cast<float*>(data[1])[n * output.strides[0] + c * output.strides[1] +
                                       y * output.strides[2] + x * output.strides[3]] =
              static_cast<float>(value);
        }
}

std::vector<KernelCase> resize_test_cases() {
  std::vector<KernelCase> list;
  const Resize kinds[] = {{.kind = Resize::Kind::kNearest},
                          {.kind = Resize::Kind::kNearest, .scale = {1 / 1.7, 1 / 2.3}},
                          {.kind = Resize::Kind::kBilinear},
                          {.kind = Resize::Kind::kBilinear, .align_corners = true},
                          {.kind = Resize::Kind::kBilinear, .scale = {1 / 1.7, 1 / 2.3}}};
  constexpr int64_t kChannels[] = {1, 3, 11, 17, 44, 67};
  size_t turn = 0;
  for (const Resize& resize : kinds)
    for (int64_t channels : kChannels) {
      const int64_t batch = turn++ % 2 ? 3 : 1;
      list.push_back(make_case(resize, batch, channels, 5, 7, 8, 16, turn % 3 ? 0 : 5));
      list.push_back(make_case(resize, 1, channels, 6, 4, 12, 8));
      list.push_back(make_case(resize, 1, channels, 11, 9, 4, 1));
      list.push_back(make_case(resize, 1, channels, 1, 1, 3, 2));
      list.push_back(make_case(resize, 1, channels, 4, 4, 4, 4));
    }
  list.push_back(make_case(kinds[0], 0, 44, 4, 4, 8, 8));
  return list;
}

std::vector<KernelCase> resize_bench_cases() {
  std::vector<KernelCase> list;
  for (const Resize& resize :
       {Resize{.kind = Resize::Kind::kNearest}, Resize{.kind = Resize::Kind::kBilinear},
        Resize{.kind = Resize::Kind::kBilinear, .align_corners = true}}) {
    list.push_back(make_case(resize, 1, 256, 28, 28, 56, 56));  // feature pyramids
    list.push_back(make_case(resize, 1, 64, 56, 56, 112, 112));
    list.push_back(make_case(resize, 1, 21, 33, 33, 257, 257));  // segmentation
  }
  return list;
}

}  // namespace nimble
