#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::image;

KernelCase make_case(Pool::Kind kind, int64_t batch, int64_t channels, int64_t height,
                     int64_t width, int64_t output_height, int64_t output_width,
                     int64_t pixel_padding = 0) {
  const int64_t pixel = channels + pixel_padding;
  return {AdaptivePool{kind},
          {image(batch, channels, height, width, pixel),
           image(batch, channels, output_height, output_width, pixel)}};
}

}  // namespace

void adaptive_pool_reference(const AdaptivePool& pool, std::span<const TensorDesc> operands,
                             void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  const float* from = static_cast<const float*>(data[0]);
  float* to = static_cast<float*>(data[1]);
  const auto begin = [&](int d, int64_t i) { return i * input.sizes[d] / output.sizes[d]; };
  const auto end = [&](int d, int64_t i) {
    return ((i + 1) * input.sizes[d] + output.sizes[d] - 1) / output.sizes[d];
  };
  for (int64_t n = 0; n < output.sizes[0]; ++n)
    for (int64_t c = 0; c < output.sizes[1]; ++c)
      for (int64_t y = 0; y < output.sizes[2]; ++y)
        for (int64_t x = 0; x < output.sizes[3]; ++x) {
          double sum = 0;
          float most = -std::numeric_limits<float>::infinity();
          int64_t count = 0;
          for (int64_t i = begin(2, y); i < end(2, y); ++i)
            for (int64_t j = begin(3, x); j < end(3, x); ++j, ++count) {
              const float value = from[n * input.strides[0] + c * input.strides[1] +
                                       i * input.strides[2] + j * input.strides[3]];
              sum += value;
              if (value > most || std::isnan(value)) most = value;
            }
          to[n * output.strides[0] + c * output.strides[1] + y * output.strides[2] +
             x * output.strides[3]] = pool.kind == Pool::Kind::kMax
                                          ? most
                                          : static_cast<float>(sum / static_cast<double>(count));
        }
}

std::vector<KernelCase> adaptive_pool_test_cases() {
  std::vector<KernelCase> list;
  for (Pool::Kind kind : {Pool::Kind::kMax, Pool::Kind::kAverage})
    for (int64_t channels : {1, 3, 11, 17, 44, 67, 130}) {
      list.push_back(make_case(kind, 1, channels, 7, 7, 1, 1));
      list.push_back(make_case(kind, 3, channels, 5, 12, 1, 1, 5));
      list.push_back(make_case(kind, 2, channels, 10, 7, 3, 7));
      list.push_back(make_case(kind, 1, channels, 3, 2, 7, 7, 2));
      list.push_back(make_case(kind, 1, channels, 1, 1, 2, 1));
      list.push_back(make_case(kind, 1, channels, 12, 11, 6, 5));
    }
  list.push_back(make_case(Pool::Kind::kMax, 0, 44, 7, 7, 1, 1));
  return list;
}

std::vector<KernelCase> adaptive_pool_bench_cases() {
  return {make_case(Pool::Kind::kAverage, 1, 1056, 7, 7, 1, 1),    // NASNet-A mobile
          make_case(Pool::Kind::kAverage, 1, 4032, 11, 11, 1, 1),  // NASNet-A large
          make_case(Pool::Kind::kAverage, 1, 1280, 7, 7, 1, 1),    // MobileNetV2, EfficientNet-B0
          make_case(Pool::Kind::kAverage, 1, 2048, 8, 8, 1, 1),    // Inception-v3
          make_case(Pool::Kind::kAverage, 1, 96, 112, 112, 1, 1),  // squeeze-and-excitation
          make_case(Pool::Kind::kAverage, 1, 240, 28, 28, 1, 1),
          make_case(Pool::Kind::kAverage, 1, 2048, 60, 60, 6, 6)};
}

}  // namespace nimble
