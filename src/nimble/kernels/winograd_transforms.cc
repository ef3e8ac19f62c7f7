#include "nimble/kernels/winograd_transforms.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/winograd_transforms.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Interpolation at 0, ±a, ±b and infinity with a = √½, b = √2. These points lose three times less
// than the usual ±1, ±2.
struct Four {
  static constexpr int64_t kSize = 4;
  static constexpr int64_t kPoints = 6;
  static constexpr float kA = 0.70710678118654752440F;
  static constexpr float kB = 1.41421356237309504880F;

  static HWY_INLINE void input(const V (&x)[6], V (&t)[6]) {
    const D d;
    const V sum = hn::Set(d, 2.5F);  // a² + b²; a² b² is 1
    const V a = hn::Set(d, kA), b = hn::Set(d, kB);
    const V a2 = hn::Set(d, 0.5F), b2 = hn::Set(d, 2.0F);
    t[0] = hn::NegMulAdd(sum, x[2], hn::Add(x[0], x[4]));
    const V even_a = hn::NegMulAdd(b2, x[2], x[4]), odd_a = hn::NegMulAdd(b2, x[1], x[3]);
    t[1] = hn::MulAdd(a, odd_a, even_a);
    t[2] = hn::NegMulAdd(a, odd_a, even_a);
    const V even_b = hn::NegMulAdd(a2, x[2], x[4]), odd_b = hn::NegMulAdd(a2, x[1], x[3]);
    t[3] = hn::MulAdd(b, odd_b, even_b);
    t[4] = hn::NegMulAdd(b, odd_b, even_b);
    t[5] = hn::NegMulAdd(sum, x[3], hn::Add(x[1], x[5]));
  }
  static HWY_INLINE void output(const V (&m)[6], V (&y)[4]) {
    const D d;
    const V s1 = hn::Add(m[1], m[2]), d1 = hn::Sub(m[1], m[2]);
    const V s2 = hn::Add(m[3], m[4]), d2 = hn::Sub(m[3], m[4]);
    const V a = hn::Set(d, kA), b = hn::Set(d, kB);
    y[0] = hn::Add(m[0], hn::Add(s1, s2));
    y[1] = hn::MulAdd(a, d1, hn::Mul(b, d2));
    y[2] = hn::MulAdd(hn::Set(d, 0.5F), s1, hn::Add(s2, s2));
    y[3] = hn::MulAdd(hn::Set(d, 0.5F * kA), d1, hn::MulAdd(hn::Set(d, 2.0F * kB), d2, m[5]));
  }
  // Of each point p: 1, p, p² over the product of p's distances from the other points.
  static HWY_INLINE void weights(const V (&g)[3], V (&t)[6]) {
    const D d;
    t[0] = g[0];
    const V even_a = hn::MulAdd(hn::Set(d, -2.0F / 3), g[0], hn::Mul(hn::Set(d, -1.0F / 3), g[2]));
    const V odd_a = hn::Mul(hn::Set(d, -kB / 3), g[1]);
    t[1] = hn::Add(even_a, odd_a);
    t[2] = hn::Sub(even_a, odd_a);
    const V even_b = hn::MulAdd(hn::Set(d, 1.0F / 6), g[0], hn::Mul(hn::Set(d, 1.0F / 3), g[2]));
    const V odd_b = hn::Mul(hn::Set(d, kB / 6), g[1]);
    t[3] = hn::Add(even_b, odd_b);
    t[4] = hn::Sub(even_b, odd_b);
    t[5] = g[2];
  }
};

// At 0, ±1 and infinity.
struct Two {
  static constexpr int64_t kSize = 2;
  static constexpr int64_t kPoints = 4;
  static HWY_INLINE void input(const V (&x)[4], V (&t)[4]) {
    t[0] = hn::Sub(x[0], x[2]);
    t[1] = hn::Add(x[1], x[2]);
    t[2] = hn::Sub(x[2], x[1]);
    t[3] = hn::Sub(x[1], x[3]);
  }
  static HWY_INLINE void output(const V (&m)[4], V (&y)[2]) {
    y[0] = hn::Add(m[0], hn::Add(m[1], m[2]));
    y[1] = hn::Sub(hn::Sub(m[1], m[2]), m[3]);
  }
  static HWY_INLINE void weights(const V (&g)[3], V (&t)[4]) {
    const V half = hn::Set(D(), 0.5F);
    const V even = hn::Mul(half, hn::Add(g[0], g[2]));
    t[0] = g[0];
    t[1] = hn::MulAdd(half, g[1], even);
    t[2] = hn::NegMulAdd(half, g[1], even);
    t[3] = g[2];
  }
};

struct TilePlace {
  int64_t image, y, x;  // of its first output pixel
};
template <class F>
HWY_INLINE TilePlace place_of(const WinogradGrid& grid, int64_t tile) {
  const int64_t row = tile / grid.tile_columns;
  return {row / grid.tile_rows, row % grid.tile_rows * F::kSize,
          tile % grid.tile_columns * F::kSize};
}

// Pixels of a tile: where the first one is, and how far apart they are.
struct Patch {
  const float* first;
  int64_t row, pixel;
};

// In the image, or if the tile sticks out of it, a copy in x.patch with zeros around.
template <class F>
Patch find_patch(const WinogradInput& x, int64_t tile) {
  const ImageRows& image = x.grid->input;
  const TilePlace place = place_of<F>(*x.grid, tile);
  const int64_t y0 = place.y - x.grid->top;
  const int64_t x0 = place.x - x.grid->left;
  const float* first = x.input + image.offset(place.image, y0) + x0 * image.pixel();
  if (y0 >= 0 && x0 >= 0 && y0 + F::kPoints <= image.height() && x0 + F::kPoints <= image.width())
    return {first, image.row(), image.pixel()};
  const int64_t pixel = x.tile_stride;
  const int64_t row = F::kPoints * pixel;
  std::memset(x.patch, 0, static_cast<size_t>(F::kPoints * row) * sizeof(float));
  const int64_t y_end = std::min(F::kPoints, image.height() - y0);
  const int64_t x_end = std::min(F::kPoints, image.width() - x0);
  for (int64_t i = std::max<int64_t>(-y0, 0); i < y_end; ++i)
    for (int64_t j = std::max<int64_t>(-x0, 0); j < x_end; ++j)
      std::memcpy(x.patch + i * row + j * pixel, first + i * image.row() + j * image.pixel(),
                  static_cast<size_t>(image.channels()) * sizeof(float));
  return {x.patch, row, pixel};
}

template <class F, bool kWhole>
HWY_INLINE void transform_input_vector(const Patch& patch, size_t count, float* to,
                                       int64_t point_stride) {
  constexpr int64_t kPoints = F::kPoints;
  const D d;
  V columns[kPoints][kPoints];  // transformed vertically, by column
#pragma GCC unroll 6
  for (int64_t j = 0; j < kPoints; ++j) {
    V x[kPoints];
#pragma GCC unroll 6
    for (int64_t i = 0; i < kPoints; ++i) {
      const float* from = patch.first + i * patch.row + j * patch.pixel;
      if constexpr (kWhole)
        x[i] = hn::LoadU(d, from);
      else
        x[i] = load_first(d, from, count);
    }
    F::input(x, columns[j]);
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kPoints; ++i) {
    V x[kPoints], t[kPoints];
#pragma GCC unroll 6
    for (int64_t j = 0; j < kPoints; ++j) x[j] = columns[j][i];
    F::input(x, t);
#pragma GCC unroll 6
    for (int64_t j = 0; j < kPoints; ++j)
      hn::StoreU(t[j], d, to + (i * kPoints + j) * point_stride);
  }
}

template <class F>
void transform_input(const WinogradInput& x) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t channels = x.grid->input.channels();
  for (int64_t tile = x.begin; tile < x.end; ++tile) {
    Patch patch = find_patch<F>(x, tile);
    float* to = x.values + (tile - x.begin) * x.tile_stride;
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes, patch.first += lanes)
      transform_input_vector<F, true>(patch, 0, to + c, x.point_stride);
    if (c < channels)
      transform_input_vector<F, false>(patch, static_cast<size_t>(channels - c), to + c,
                                       x.point_stride);
  }
}

template <class F>
void transform_weights(const WinogradWeights& x) {
  const D d;
  constexpr int64_t kPoints = F::kPoints;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t tap = x.inputs * x.outputs;
  for (int64_t at = 0; at < tap; at += lanes) {
    V columns[3][kPoints];  // transformed vertically, by column
#pragma GCC unroll 3
    for (int64_t j = 0; j < 3; ++j) {
      V g[3];
#pragma GCC unroll 3
      for (int64_t i = 0; i < 3; ++i) g[i] = hn::Load(d, x.weights + (i * 3 + j) * tap + at);
      F::weights(g, columns[j]);
    }
#pragma GCC unroll 6
    for (int64_t i = 0; i < kPoints; ++i) {
      const V g[3] = {columns[0][i], columns[1][i], columns[2][i]};
      V t[kPoints];
      F::weights(g, t);
#pragma GCC unroll 6
      for (int64_t j = 0; j < kPoints; ++j)
        hn::Store(t[j], d, x.to + (i * kPoints + j) * x.point_stride + at);
    }
  }
}

// The sums of one tile and a vector of channels from `column` of the panel on, the plain way.
template <class F>
HWY_NOINLINE void sum_again(const WinogradOutput& x, const TilePlace& place, int64_t column,
                            size_t count, V (&y)[F::kSize * F::kSize]) {
  const D d;
  const ImageRows& image = x.grid->input;
  const auto& s = x.weight_strides;
  HWY_ALIGN float some[hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < F::kSize; ++i)
    for (int64_t j = 0; j < F::kSize; ++j) {
      V sum = hn::Zero(d);
      for (int64_t ky = 0; ky < 3; ++ky)
        for (int64_t kx = 0; kx < 3; ++kx) {
          const int64_t iy = place.y + i + ky - x.grid->top;
          const int64_t ix = place.x + j + kx - x.grid->left;
          if (iy < 0 || ix < 0 || iy >= image.height() || ix >= image.width()) continue;
          const float* from = x.input + image.offset(place.image, iy) + ix * image.pixel();
          const float* w = x.weights + column * s[0] + ky * s[2] + kx * s[3];
          for (int64_t c = 0; c < image.channels(); ++c, w += s[1]) {
            for (size_t lane = 0; lane < count; ++lane)
              some[lane] = w[static_cast<int64_t>(lane) * s[0]];
            sum = hn::MulAdd(hn::Set(d, from[c]), hn::Load(d, some), sum);
          }
        }
      y[i * F::kSize + j] = sum;
    }
}

template <class F>
void transform_output(const WinogradOutput& x) {
  constexpr int64_t kPoints = F::kPoints;
  constexpr int64_t kSize = F::kSize;
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const ImageRows& output = x.grid->output;
  const Epilogue& epilogue = *x.epilogue;
  ClampBounds first, last;
  const bool clamps = is_clamp(epilogue.first, first) && is_clamp(epilogue.last, last);
  const V low = hn::Set(d, first.low), high = hn::Set(d, first.high);
  const V last_low = hn::Set(d, last.low), last_high = hn::Set(d, last.high);

  for (int64_t tile = x.begin; tile < x.end; ++tile) {
    const TilePlace place = place_of<F>(*x.grid, tile);
    const int64_t rows = std::min(kSize, output.height() - place.y);
    const int64_t pixels = std::min(kSize, output.width() - place.x);
    float* to = x.output + output.offset(place.image, place.y) + place.x * output.pixel();
    const float* addend = nullptr;
    if (x.addend != nullptr)
      addend =
          x.addend + x.addend_rows->offset(place.image, place.y) + place.x * x.addend_rows->pixel();
    const float* from = x.sums + (tile - x.begin) * x.tile_stride;

    for (int64_t c = 0; c < x.columns; c += lanes) {
      V half[kSize][kPoints];
#pragma GCC unroll 6
      for (int64_t j = 0; j < kPoints; ++j) {
        V m[kPoints], t[kSize];
#pragma GCC unroll 6
        for (int64_t i = 0; i < kPoints; ++i)
          m[i] = hn::Load(d, from + c + (i * kPoints + j) * x.point_stride);
        F::output(m, t);
#pragma GCC unroll 6
        for (int64_t i = 0; i < kSize; ++i) half[i][j] = t[i];
      }
      V y[kSize * kSize];
      V total = hn::Zero(d);
#pragma GCC unroll 6
      for (int64_t i = 0; i < kSize; ++i) {
        V t[kSize];
        F::output(half[i], t);
#pragma GCC unroll 6
        for (int64_t j = 0; j < kSize; ++j) {
          y[i * kSize + j] = t[j];
          total = hn::Add(total, t[j]);
        }
      }
      const size_t count = static_cast<size_t>(std::min(lanes, x.columns - c));
      // Infinite or NaN less itself is NaN.
      if (!hn::AllTrue(d, hn::Eq(hn::Sub(total, total), hn::Zero(d))))
        sum_again<F>(x, place, c, count, y);

      const V bias = hn::Load(d, x.bias + c);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < pixels; ++j) {
          V value = hn::Add(y[i * kSize + j], bias);
          float* p = to + i * output.row() + j * output.pixel() + c;
          if (clamps) {
            value = at_most(at_least(value, low), high);
            if (addend != nullptr) {
              const float* a = addend + i * x.addend_rows->row() + j * x.addend_rows->pixel() + c;
              value =
                  hn::Add(value, static_cast<int64_t>(count) == lanes ? hn::LoadU(d, a)
                                                                      : load_first(d, a, count));
            }
            value = at_most(at_least(value, last_low), last_high);
          }
          if (static_cast<int64_t>(count) == lanes)
            hn::StoreU(value, d, p);
          else
            store_first(d, value, p, count);
        }
    }
    if (clamps) continue;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < pixels; ++j)
        finish_row(d, epilogue,
                   addend == nullptr
                       ? nullptr
                       : addend + i * x.addend_rows->row() + j * x.addend_rows->pixel(),
                   to + i * output.row() + j * output.pixel(), static_cast<size_t>(x.columns));
  }
}

void list_transforms(int64_t size, WinogradTransforms& list) {
  list.input = size == 4 ? transform_input<Four> : transform_input<Two>;
  list.output = size == 4 ? transform_output<Four> : transform_output<Two>;
  list.weights = size == 4 ? transform_weights<Four> : transform_weights<Two>;
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(list_transforms);

WinogradTransforms winograd_transforms(int64_t size) {
  WinogradTransforms list;
  HWY_DYNAMIC_DISPATCH(list_transforms)(size, list);
  return list;
}

}  // namespace nimble
#endif
