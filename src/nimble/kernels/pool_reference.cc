#include <algorithm>
#include <cmath>
#include <limits>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::image;

struct Shape {
  int64_t batch, channels, height, width;
  int64_t kernel, stride = 1, padding = 0, dilation = 1;
  bool ceil_mode = false;
  int64_t pixel_padding = 0;
};

KernelCase make_case(const Shape& shape, Pool pool) {
  pool.kernel = {shape.kernel, shape.kernel};
  pool.stride = {shape.stride, shape.stride};
  pool.padding = pool.far_padding = {shape.padding, shape.padding};
  pool.dilation = {shape.dilation, shape.dilation};
  const auto output_size = [&](int64_t size) {
    const int64_t room = size + 2 * shape.padding - (shape.kernel - 1) * shape.dilation - 1;
    int64_t count = (room + (shape.ceil_mode ? shape.stride - 1 : 0)) / shape.stride + 1;
    if (shape.ceil_mode && (count - 1) * shape.stride >= size + shape.padding) --count;
    return std::max<int64_t>(count, 1);
  };
  const int64_t pixel = shape.channels + shape.pixel_padding;
  const int64_t height = output_size(shape.height);
  const int64_t width = output_size(shape.width);
  KernelCase made{pool, {image(shape.batch, shape.channels, shape.height, shape.width, pixel)}};
  if (pool.epilogue.add) made.operands.push_back(image(shape.batch, shape.channels, height, width));
  made.operands.push_back(image(shape.batch, shape.channels, height, width, pixel));
  return made;
}

Pool of_kind(Pool::Kind kind, bool count_include_pad = true) {
  Pool pool;
  pool.kind = kind;
  pool.count_include_pad = count_include_pad;
  return pool;
}

float pool_window(const Pool& pool, const TensorDesc& input, const float* from, int64_t y,
                  int64_t x) {
  const int64_t top = y * pool.stride[0] - pool.padding[0];
  const int64_t left = x * pool.stride[1] - pool.padding[1];
  double sum = 0;
  float most = -std::numeric_limits<float>::infinity();
  int64_t counted = 0;
  int64_t inside = 0;
  for (int64_t i = 0; i < pool.kernel[0]; ++i)
    for (int64_t j = 0; j < pool.kernel[1]; ++j) {
      const int64_t row = top + i * pool.dilation[0];
      const int64_t column = left + j * pool.dilation[1];
      if (row >= input.sizes[2] + pool.far_padding[0]) continue;
      if (column >= input.sizes[3] + pool.far_padding[1]) continue;
      ++counted;
      if (row < 0 || column < 0 || row >= input.sizes[2] || column >= input.sizes[3]) continue;
      ++inside;
      const float value = from[row * input.strides[2] + column * input.strides[3]];
      sum += value;
      if (value > most || std::isnan(value)) most = value;
    }
  if (pool.kind == Pool::Kind::kMax) return most;
  if (inside == 0) return 0;
  const int64_t divisor = pool.divisor ? pool.divisor : pool.count_include_pad ? counted : inside;
  return static_cast<float>(sum / static_cast<double>(divisor));
}

}  // namespace

void pool_reference(const Pool& pool, std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands.back();
  for (int64_t n = 0; n < output.sizes[0]; ++n)
    for (int64_t c = 0; c < output.sizes[1]; ++c)
      for (int64_t y = 0; y < output.sizes[2]; ++y)
        for (int64_t x = 0; x < output.sizes[3]; ++x) {
          const auto at = [&](const TensorDesc& desc) {
            return n * desc.strides[0] + c * desc.strides[1] + y * desc.strides[2] +
                   x * desc.strides[3];
          };
          const float* image_data =
              static_cast<const float*>(data[0]) + n * input.strides[0] + c * input.strides[1];
          const float addend =
              pool.epilogue.add ? static_cast<const float*>(data[1])[at(operands[1])] : 0.0f;
          static_cast<float*>(data[operands.size() - 1])[at(output)] =
              reference_epilogue(pool.epilogue, pool_window(pool, input, image_data, y, x), addend);
        }
}

std::vector<KernelCase> pool_test_cases() {
  std::vector<KernelCase> list;
  constexpr int64_t kChannels[] = {1, 3, 11, 17, 44, 67};
  size_t turn = 0;
  for (Pool::Kind kind : {Pool::Kind::kMax, Pool::Kind::kAverage})
    for (int64_t kernel : {1, 2, 3, 5})
      for (int64_t stride : {1, 2, 3})
        for (int64_t size = 1; size <= 12; size += 1 + size / 5) {
          ++turn;
          Pool pool = of_kind(kind);
          pool.count_include_pad = turn % 2;
          if (turn % 11 == 0) pool.divisor = 5;
          if (turn % 5 == 0) pool.epilogue.first = {ActivationKind::kRelu};
          pool.epilogue.add = turn % 4 == 0;
          if (turn % 8 == 0) pool.epilogue.last = {ActivationKind::kSilu};
          list.push_back(make_case({.batch = turn % 7 == 0 ? 3 : 1,
                                    .channels = kChannels[turn % 6],
                                    .height = 1 + static_cast<int64_t>(turn) % 6,
                                    .width = size,
                                    .kernel = kernel,
                                    .stride = stride,
                                    .padding = kernel / 2,
                                    .dilation = kind == Pool::Kind::kMax && turn % 3 == 0 ? 2 : 1,
                                    .ceil_mode = turn % 3 == 1,
                                    .pixel_padding = turn % 5 == 1 ? 5 : 0},
                                   pool));
        }
  for (Pool::Kind kind : {Pool::Kind::kMax, Pool::Kind::kAverage}) {
    list.push_back(make_case({1, 44, 7, 15, 3, 1, 1}, of_kind(kind)));
    list.push_back(make_case({1, 44, 15, 16, 3, 2, 1}, of_kind(kind, false)));
    list.push_back(make_case({1, 33, 9, 9, 3, 2, 0, 1, true}, of_kind(kind)));
    list.push_back(make_case({1, 17, 8, 8, 3, 2, 1, 1, true}, of_kind(kind)));
    list.push_back(make_case({0, 17, 8, 8, 3, 2, 1}, of_kind(kind)));
    list.push_back(make_case({1, 20, 8, 8, 8, 8}, of_kind(kind)));
    list.push_back(make_case({1, 20, 2, 3, 3, 1, 4}, of_kind(kind, false)));  // windows of nothing
    KernelCase made = make_case({1, 19, 6, 8, 3, 2, 1}, of_kind(kind));  // far padding of its own
    std::get<Pool>(made.attributes).far_padding = {0, 0};
    list.push_back(made);
  }
  return list;
}

std::vector<KernelCase> pool_bench_cases() {
  std::vector<KernelCase> list;
  const Pool most = of_kind(Pool::Kind::kMax);
  const Pool mean = of_kind(Pool::Kind::kAverage, false);
  for (const Pool& pool : {most, mean}) {
    list.push_back(make_case({1, 44, 28, 28, 3, 1, 1}, pool));  // NASNet-A mobile
    list.push_back(make_case({1, 22, 56, 56, 3, 2, 1}, pool));
    list.push_back(make_case({1, 88, 14, 14, 3, 1, 1}, pool));
    list.push_back(make_case({1, 176, 7, 7, 3, 1, 1}, pool));
    list.push_back(make_case({1, 168, 42, 42, 3, 1, 1}, pool));  // NASNet-A large
    list.push_back(make_case({1, 336, 21, 21, 3, 1, 1}, pool));
    list.push_back(make_case({1, 288, 35, 35, 3, 1, 1}, pool));  // Inception-v3
    list.push_back(make_case({1, 64, 147, 147, 3, 2, 0}, pool));
    list.push_back(make_case({1, 64, 112, 112, 3, 2, 1}, pool));  // ResNet
  }
  list.push_back(make_case({1, 2048, 8, 8, 8, 8}, mean));
  list.push_back(make_case({1, 64, 56, 56, 2, 2}, most));
  return list;
}

}  // namespace nimble
