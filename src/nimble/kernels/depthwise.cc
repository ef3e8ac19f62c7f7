#include "nimble/kernels/depthwise.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/kernels/divide_row.h"
#include "nimble/kernels/pack_weights.h"
#include "nimble/kernels/panel_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/depthwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

// Vectors are of channels. A tile is a few neighbouring output pixels of one vector: for each row
// of the kernel, its weights are in registers, and each input pixel is loaded once and added to all
// the tile's pixels that see it. At the image's edges the pixels outside are skipped, so that a
// tile may be as wide as the image.
HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

struct TileArguments {
  const float* input;    // the row of the first tap inside of the image, column 0, first channel
  int64_t input_row;     // from one tap to the next below
  int64_t input_column;  // from one column of the tile to the next
  int64_t left;          // the tile's first column, in elements; may be outside
  int column_begin;      // those of the tile's columns that are inside of the image
  int column_end;
  uint32_t columns_inside;  // the same as bits; of a fixed tile only
  const float* bias;
  const float* weights;  // of the first tap row inside of the image
  int tap_rows;
  float* output;
  int64_t output_pixel;
  int lanes;  // of a partial vector
  bool at_least;
  bool at_most;
  float low;
  float high;
  // Of a generic tile only.
  int kernel_width;
  int stride;
  int dilation;
};
using TileFunction = void (*)(const TileArguments&);

template <int kTile, class Lanes>
HWY_INLINE void store_tile(const TileArguments& a, const Lanes& lanes, FloatVector (&sums)[kTile]) {
  const FloatTag d;
  if (a.at_least) {
    const FloatVector low = hn::Set(d, a.low);
    for_each_constant<kTile>([&](auto i)
                                 NIMBLE_INLINE_LAMBDA { sums[i] = at_least(sums[i], low); });
  }
  if (a.at_most) {
    const FloatVector high = hn::Set(d, a.high);
    for_each_constant<kTile>([&](auto i)
                                 NIMBLE_INLINE_LAMBDA { sums[i] = at_most(sums[i], high); });
  }
  float* output = a.output;
  const int64_t pixel = a.output_pixel;
  for_each_constant<kTile>([&](auto i) NIMBLE_INLINE_LAMBDA {
    lanes.store(sums[i], output);
    output += pixel;
  });
}

// Kernel width, stride and dilation are known.
template <int kTile, int kWidth, int kStride, int kDilation, bool kRelu, bool kEdge, class Lanes>
struct FixedTile {
  static constexpr int kColumns = (kTile - 1) * kStride + (kWidth - 1) * kDilation + 1;
  static_assert(kColumns <= 32);

  static void run(const TileArguments& a) {
    const FloatTag d;
    const Lanes lanes(a.lanes);
    FloatVector sums[kTile];
    const FloatVector bias = hn::Load(d, a.bias);
    for_each_constant<kTile>([&](auto i) NIMBLE_INLINE_LAMBDA { sums[i] = bias; });
    const float* input = a.input + a.left;
    const float* tap = a.weights;
    const uint32_t inside = a.columns_inside;
    const int64_t column_step = a.input_column;
    const int64_t row_step = a.input_row;
    for (int row = a.tap_rows; row > 0; --row) {
      FloatVector weights[kWidth];
      for_each_constant<kWidth>([&](auto i) NIMBLE_INLINE_LAMBDA {
        weights[i] = in_register(hn::Load(FloatTag(), tap + i * kLanes));
      });
      const float* at = input;
      for_each_constant<kColumns>([&](auto column) NIMBLE_INLINE_LAMBDA {
        constexpr int kColumn = column;
        const float* from = at;
        at += column_step;
        if constexpr (kEdge)
          if (!(inside & (uint32_t{1} << kColumn))) return;
        FloatVector x = in_register(lanes.load(from));
        if constexpr (kRelu) x = at_least(x, hn::Zero(FloatTag()));
        for_each_constant<kTile>([&](auto pixel) NIMBLE_INLINE_LAMBDA {
          constexpr int kDistance = kColumn - pixel * kStride;
          constexpr int kTap = kDistance / kDilation;
          if constexpr (kDistance >= 0 && kDistance % kDilation == 0 && kTap < kWidth)
            sums[pixel] = hn::MulAdd(x, weights[kTap], sums[pixel]);
        });
      });
      input += row_step;
      tap += kWidth * kLanes;
    }
    store_tile<kTile>(a, lanes, sums);
  }
};

template <int kTile, bool kRelu, bool kEdge, class Lanes>
struct AnyTile {
  static void run(const TileArguments& a) {
    const FloatTag d;
    const Lanes lanes(a.lanes);
    FloatVector sums[kTile];
    const FloatVector bias = hn::Load(d, a.bias);
    for_each_constant<kTile>([&](auto i) NIMBLE_INLINE_LAMBDA { sums[i] = bias; });
    const float* input = a.input;
    const float* tap = a.weights;
    for (int row = 0; row < a.tap_rows; ++row) {
      for (int i = 0; i < a.kernel_width; ++i) {
        const FloatVector weight = hn::Load(d, tap);
        for_each_constant<kTile>([&](auto pixel) NIMBLE_INLINE_LAMBDA {
          const int column = pixel * a.stride + i * a.dilation;
          if constexpr (kEdge)
            if (column < a.column_begin || column >= a.column_end) return;
          FloatVector x = lanes.load(input + a.left + column * a.input_column);
          if constexpr (kRelu) x = at_least(x, hn::Zero(FloatTag()));
          sums[pixel] = hn::MulAdd(x, weight, sums[pixel]);
        });
        tap += kLanes;
      }
      input += a.input_row;
    }
    store_tile<kTile>(a, lanes, sums);
  }
};

// The tiles of a row. Multiples of 7 and 8 are the usual widths of images. Fewer where nobody will
// measure, for the compiler's sake: with a sanitizer it took ten minutes for all.
#ifdef __SANITIZE_ADDRESS__
constexpr int kTileSizes[] = {2, 1};
#elif HWY_TARGET <= HWY_AVX3
constexpr int kTileSizes[] = {8, 7, 6, 4, 2, 1};
#elif HWY_TARGET <= HWY_AVX2
constexpr int kTileSizes[] = {7, 4, 2, 1};
#else
constexpr int kTileSizes[] = {4, 2, 1};
#endif
constexpr int kTileSizeCount = static_cast<int>(std::size(kTileSizes));
constexpr int kAnyTileSize = 4;

enum TileVariant { kInner, kEdges, kPartialVector, kVariants };
using TileFunctions = std::array<TileFunction, kVariants>;

template <int kTile, int kWidth, int kStride, int kDilation, bool kRelu>
constexpr TileFunctions fixed_tile_functions() {
  return {FixedTile<kTile, kWidth, kStride, kDilation, kRelu, false, AllLanes>::run,
          FixedTile<kTile, kWidth, kStride, kDilation, kRelu, true, AllLanes>::run,
          FixedTile<kTile, kWidth, kStride, kDilation, kRelu, true, SomeLanes>::run};
}

template <int kTile, bool kRelu>
constexpr TileFunctions any_tile_functions() {
  return {AnyTile<kTile, kRelu, false, AllLanes>::run, AnyTile<kTile, kRelu, true, AllLanes>::run,
          AnyTile<kTile, kRelu, true, SomeLanes>::run};
}

struct TileSet {
  int width, stride, dilation;
  bool relu;
  std::array<TileFunctions, kTileSizeCount> functions;
};

template <int kWidth, int kStride, int kDilation, bool kRelu, int... kIndices>
constexpr TileSet make_tile_set(std::integer_sequence<int, kIndices...>) {
  return {kWidth,
          kStride,
          kDilation,
          kRelu,
          {fixed_tile_functions<kTileSizes[kIndices], kWidth, kStride, kDilation, kRelu>()...}};
}

template <int kWidth, int kStride, int kDilation, bool kRelu>
constexpr TileSet tile_set() {
  return make_tile_set<kWidth, kStride, kDilation, kRelu>(
      std::make_integer_sequence<int, kTileSizeCount>());
}

constexpr TileSet kTileSets[] = {
    tile_set<3, 1, 1, false>(),
    tile_set<3, 1, 1, true>(),
    tile_set<3, 2, 1, false>(),
    // The gradient of an input with stride 2 is made of these.
    tile_set<1, 1, 1, false>(),
    tile_set<2, 1, 1, false>(),
#if HWY_TARGET <= HWY_AVX2 && !defined(__SANITIZE_ADDRESS__)
    tile_set<3, 2, 1, true>(),
    tile_set<3, 1, 2, false>(),
    tile_set<3, 1, 2, true>(),
    tile_set<5, 1, 1, false>(),
    tile_set<5, 1, 1, true>(),
    tile_set<5, 2, 1, false>(),
    tile_set<5, 2, 1, true>(),
    tile_set<5, 1, 2, false>(),
    tile_set<5, 1, 2, true>(),
    tile_set<7, 1, 1, false>(),
    tile_set<7, 1, 1, true>(),
    tile_set<7, 2, 1, false>(),
    tile_set<7, 2, 1, true>(),
#endif
};

constexpr TileFunctions kAnyTiles[2][2] = {
    {any_tile_functions<kAnyTileSize, false>(), any_tile_functions<1, false>()},
    {any_tile_functions<kAnyTileSize, true>(), any_tile_functions<1, true>()}};

const TileSet* find_tile_set(int64_t width, int64_t stride, int64_t dilation, bool relu) {
  for (const TileSet& set : kTileSets)
    if (set.width == width && set.stride == stride && set.dilation == dilation && set.relu == relu)
      return &set;
  return nullptr;
}

constexpr int64_t kFarBytes = 2 << 20;

// A tile of a row: where it is and who computes it.
struct PlannedTile {
  int64_t pixel;
  int64_t left;
  int column_begin;
  int column_end;
  uint32_t columns_inside;
  int size;
  bool edge;
  TileFunctions functions;
};

// Memory that the next row wants, fetched a little with every tile: an image that does not fit into
// a cache would else come line by line, each waited for.
class RowFetch {
 public:
  RowFetch(const float* begin, int64_t floats, int64_t turns)
      : at_(reinterpret_cast<const char*>(begin)), lines_(floats / kLineFloats) {
    share_ = (lines_ + turns - 1) / std::max<int64_t>(turns, 1);
  }
  HWY_INLINE void take_turn() {
    const int64_t count = std::min(share_, lines_);
    for (int64_t i = 0; i < count; ++i) __builtin_prefetch(at_ + i * 64, 0, 2);
    at_ += count * 64;
    lines_ -= count;
  }

 private:
  static constexpr int64_t kLineFloats = 16;
  const char* at_;
  int64_t lines_;
  int64_t share_ = 0;
};

class Rows final : public DepthwiseRows {
 public:
  Rows(const Convolution& convolution, const TensorDesc& input, const TensorDesc& weight,
       const std::vector<int64_t>& output_sizes)
      : convolution_(convolution),
        channels_(input.sizes[1]),
        height_(input.sizes[2]),
        width_(input.sizes[3]),
        kernel_height_(weight.sizes[2]),
        kernel_width_(weight.sizes[3]),
        output_height_(output_sizes[2]),
        output_width_(output_sizes[3]),
        input_strides_{input.strides[0], input.strides[2], input.strides[3]},
        weight_strides_{weight.strides[0], weight.strides[2], weight.strides[3]} {
    is_far_ = channels_ * width_ * height_ * static_cast<int64_t>(sizeof(float)) > kFarBytes;
    plan_tiles();
    const Epilogue& epilogue = convolution.epilogue;
    const bool simple = !epilogue.add && epilogue.last.kind == ActivationKind::kNone;
    const Activation& first = epilogue.first;
    at_least_ =
        simple && (first.kind == ActivationKind::kRelu || first.kind == ActivationKind::kClamp);
    at_most_ = simple && first.kind == ActivationKind::kClamp;
    low_ = first.kind == ActivationKind::kClamp ? first.a : 0.0f;
    high_ = first.b;
    finish_later_ = !at_least_ && !(simple && first.kind == ActivationKind::kNone);
  }

  std::string kind() const {
    return fixed_ ? message(kernel_height_, "x", kernel_width_) : std::string("any");
  }
  int64_t lanes() const override { return kLanes; }

  // A block of channels stays in L1 from one row to the next. If whole rows do so or the input
  // comes from far away, all channels at once: memory likes long runs.
  int64_t channel_block() const override {
    constexpr int64_t kRowsInL1 = 32 << 10;
    constexpr int64_t kBlock = 4 * kLanes;
    const int64_t row = channels_ * width_ * static_cast<int64_t>(sizeof(float));
    return row * kernel_height_ <= kRowsInL1 || is_far_ ? (channels_ + kLanes - 1) / kLanes * kLanes
                                                        : kBlock;
  }

  // By vector of channels: the bias, then the taps.
  size_t packed_bytes() const override {
    return static_cast<size_t>((channels_ + kLanes - 1) / kLanes * packed_vectors()) * kLanes *
           sizeof(float);
  }
  void pack(const float* weight, const float* bias, std::byte* packed) const override {
    pack_channels(weight, bias, 0, channels_, packed);
  }
  // Those of the vectors that begin in [begin, end).
  void pack_channels(const float* weight, const float* bias, int64_t begin, int64_t end,
                     std::byte* packed) const {
    for (int64_t base = begin; base < end; base += kLanes) {
      float* to = reinterpret_cast<float*>(packed) + base * packed_vectors();
      const int64_t count = std::min<int64_t>(kLanes, channels_ - base);
      for (int64_t c = 0; c < kLanes; ++c)
        to[c] = bias != nullptr && c < count ? bias[base + c] : 0.0f;
      pack_weights({.weight = weight + base * weight_strides_[0],
                    .strides = {weight_strides_[0], 1, weight_strides_[1], weight_strides_[2]},
                    .columns = count,
                    .inputs = 1,
                    .kernel = {kernel_height_, kernel_width_}},
                   to + kLanes, kLanes);
    }
  }
  PackedRange channel_bytes(int64_t begin, int64_t end) const {
    const auto offset = [&](int64_t c) {
      return static_cast<size_t>((c + kLanes - 1) / kLanes * kLanes * packed_vectors()) *
             sizeof(float);
    };
    return {offset(begin), offset(end)};
  }

  void run(const Arguments& arguments) const override {
    const int64_t image = arguments.row / output_height_;
    const int64_t y = arguments.row % output_height_;
    const int64_t top = y * convolution_.stride[0] - convolution_.padding[0];
    const int64_t dilation = convolution_.dilation[0];
    const int64_t tap_begin =
        top < 0 ? std::min((-top + dilation - 1) / dilation, kernel_height_) : 0;
    const int64_t tap_end =
        top < height_ ? std::min((height_ - top + dilation - 1) / dilation, kernel_height_) : 0;

    TileArguments tile;
    tile.input_row = dilation * input_strides_[1];
    tile.input_column = column_step_ * input_strides_[2];
    tile.tap_rows = static_cast<int>(std::max<int64_t>(tap_end - tap_begin, 0));
    tile.at_least = at_least_;
    tile.at_most = at_most_;
    tile.low = low_;
    tile.high = high_;
    tile.kernel_width = static_cast<int>(kernel_width_);
    tile.stride = static_cast<int>(stride_);
    tile.dilation = static_cast<int>(dilation_);
    const float* row = arguments.input + image * input_strides_[0];
    if (tile.tap_rows > 0) row += (top + tap_begin * dilation) * input_strides_[1];

    const auto go_to_tile = [&](const PlannedTile& planned) {
      tile.left = planned.left * input_strides_[2];
      tile.column_begin = planned.column_begin;
      tile.column_end = planned.column_end;
      tile.columns_inside = planned.columns_inside;
    };
    const auto go_to_channel = [&](int64_t c) {
      tile.lanes = static_cast<int>(std::min<int64_t>(arguments.channel_end - c, kLanes));
      tile.input = row + c;
      tile.bias = reinterpret_cast<const float*>(arguments.packed) + c * packed_vectors();
      tile.weights = tile.bias + (1 + tap_begin * kernel_width_) * kLanes;
    };
    const int64_t begin = arguments.channel_begin;
    const int64_t end = arguments.channel_end;
    if (!is_far_) {
      for (int64_t c = begin; c < end; c += kLanes) {
        go_to_channel(c);
        for (const PlannedTile& planned : tiles_) {
          go_to_tile(planned);
          run_tile(arguments, planned, c - begin, tile);
        }
      }
      return;
    }
    // Memory likes long runs: all channels of a pixel lie in one.
    const int64_t turns =
        static_cast<int64_t>(tiles_.size()) * ((end - begin + kLanes - 1) / kLanes);
    RowFetch input_fetch = fetch_for_next_row(arguments, top, turns);
    const int64_t output_row = arguments.next_output ? output_width_ * arguments.output_pixel : 0;
    RowFetch output_fetch(arguments.next_output, output_row, turns);
    for (const PlannedTile& planned : tiles_) {
      go_to_tile(planned);
      for (int64_t c = begin; c < end; c += kLanes) {
        go_to_channel(c);
        input_fetch.take_turn();
        output_fetch.take_turn();
        run_tile(arguments, planned, c - begin, tile);
      }
    }
  }

 private:
  int64_t packed_vectors() const { return 1 + kernel_height_ * kernel_width_; }

  // The rows below those that this one reads, as many as the stride.
  RowFetch fetch_for_next_row(const Arguments& arguments, int64_t top, int64_t turns) const {
    const bool all_channels = arguments.channel_end - arguments.channel_begin == channels_;
    const int64_t below = top + (kernel_height_ - 1) * convolution_.dilation[0] + 1;
    const int64_t begin = std::clamp<int64_t>(below, 0, height_);
    const int64_t end = std::clamp<int64_t>(below + convolution_.stride[0], 0, height_);
    if (!all_channels || begin == end) return {nullptr, 0, turns};
    const int64_t image = arguments.row / output_height_;
    return {arguments.input + image * input_strides_[0] + begin * input_strides_[1],
            (end - begin) * input_strides_[1], turns};
  }

  // From channel `offset` of the arguments' on.
  void run_tile(const Arguments& arguments, const PlannedTile& planned, int64_t offset,
                TileArguments& tile) const {
    const TileFunction function = planned.functions[tile.lanes < kLanes ? kPartialVector
                                                    : planned.edge      ? kEdges
                                                                        : kInner];
    float* output = arguments.output + planned.pixel * arguments.output_pixel + offset;
    if (!finish_later_) {
      tile.output = output;
      tile.output_pixel = arguments.output_pixel;
      function(tile);
      return;
    }
    HWY_ALIGN float sums[std::max(kTileSizes[0], kAnyTileSize) * kLanes];
    tile.output = sums;
    tile.output_pixel = kLanes;
    function(tile);
    const float* addend = arguments.addend
                              ? arguments.addend + planned.pixel * arguments.addend_pixel + offset
                              : nullptr;
    finish_tile(convolution_.epilogue, sums, planned.size, tile.lanes, addend,
                arguments.addend_pixel, output, arguments.output_pixel);
  }

  void plan_tiles() {
    // With a common factor of stride and dilation, only every so many columns are seen.
    column_step_ = std::gcd(convolution_.stride[1], convolution_.dilation[1]);
    stride_ = convolution_.stride[1] / column_step_;
    dilation_ = convolution_.dilation[1] / column_step_;
    const TileSet* set = find_tile_set(kernel_width_, stride_, dilation_, convolution_.relu_input);
    fixed_ = set != nullptr;
    int64_t pixel = 0;
    const auto add = [&](int size, const TileFunctions& functions) {
      const int64_t left = pixel * convolution_.stride[1] - convolution_.padding[1];
      const int64_t columns = (size - 1) * stride_ + (kernel_width_ - 1) * dilation_ + 1;
      const int64_t begin = left < 0 ? (-left + column_step_ - 1) / column_step_ : 0;
      const int64_t end =
          left < width_ ? std::min((width_ - left + column_step_ - 1) / column_step_, columns) : 0;
      uint32_t inside = 0;
      for (int64_t column = begin; set != nullptr && column < end; ++column)
        inside |= uint32_t{1} << column;
      tiles_.push_back({pixel, left, static_cast<int>(begin), static_cast<int>(end), inside, size,
                        begin > 0 || end < columns, functions});
      pixel += size;
    };
    if (set) {
      for (int index : divide_row(output_width_, kTileSizes))
        add(kTileSizes[index], set->functions[index]);
    } else {
      const auto& sizes = kAnyTiles[convolution_.relu_input];
      while (pixel < output_width_) {
        const bool large = output_width_ - pixel >= kAnyTileSize;
        add(large ? kAnyTileSize : 1, sizes[large ? 0 : 1]);
      }
    }
  }

  Convolution convolution_;
  int64_t channels_, height_, width_;
  int64_t kernel_height_, kernel_width_;
  int64_t output_height_, output_width_;
  std::array<int64_t, 3> input_strides_;                 // image, row, pixel
  std::array<int64_t, 3> weight_strides_;                // channel, row, column
  int64_t column_step_ = 1, stride_ = 1, dilation_ = 1;  // in columns of that step
  bool fixed_ = false;
  bool is_far_ = false;  // the input does not fit into a core's own cache
  std::vector<PlannedTile> tiles_;
  bool at_least_ = false, at_most_ = false;
  float low_ = 0, high_ = 0;
  bool finish_later_ = false;
};

class DepthwiseKernel final : public PanelKernel {
 public:
  DepthwiseKernel(const Convolution& convolution, std::span<const TensorDesc> operands)
      : convolution_(convolution),
        rows_(convolution, operands[0], operands[1], operands.back().sizes),
        output_(operands.back()) {
    if (convolution.epilogue.add) addend_ = operands[operands.size() - 2];
  }

  std::string name() const override {
    return message("depthwise.", rows_.kind(), " of ", kLanes, " channels");
  }
  Work work() const override {
    if (output_.numel() == 0) return {.rows = 0, .columns = 0};
    return {output_.sizes[0] * output_.sizes[2], 1, output_.sizes[1], kLanes};
  }
  size_t packed_bytes() const override { return rows_.packed_bytes(); }
  PackedRange column_bytes(int64_t begin, int64_t end) const override {
    return rows_.channel_bytes(begin, end);
  }
  void pack_columns(void* const* operands, int64_t begin, int64_t end,
                    std::byte* packed) const override {
    rows_.pack_channels(static_cast<const float*>(operands[1]),
                        convolution_.bias ? static_cast<const float*>(operands[2]) : nullptr, begin,
                        end, packed);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    const size_t last = convolution_.addend_operand();
    DepthwiseRows::Arguments row{};
    row.input = static_cast<const float*>(arguments.operands[0]);
    row.packed = arguments.packed;
    row.output_pixel = output_.strides[3];
    const float* addend = nullptr;
    if (convolution_.epilogue.add) {
      addend = static_cast<const float*>(arguments.operands[last]);
      row.addend_pixel = addend_.strides[3];
    }
    float* output =
        static_cast<float*>(arguments.operands[convolution_.epilogue.add ? last + 1 : last]);
    const int64_t block = rows_.channel_block();
    for (int64_t c = part.column_begin; c < part.column_end; c += block) {
      row.channel_begin = c;
      row.channel_end = std::min(c + block, part.column_end);
      for (row.row = part.row_begin; row.row < part.row_end; ++row.row) {
        row.output = output + offset(output_, row.row) + c;
        const bool more = row.row + 1 < part.row_end && block >= output_.sizes[1];
        row.next_output = more ? output + offset(output_, row.row + 1) : nullptr;
        if (addend) row.addend = addend + offset(addend_, row.row) + c;
        rows_.run(row);
      }
    }
  }

 private:
  static int64_t offset(const TensorDesc& desc, int64_t row) {
    return row / desc.sizes[2] * desc.strides[0] + row % desc.sizes[2] * desc.strides[2];
  }

  Convolution convolution_;
  Rows rows_;
  TensorDesc output_;
  TensorDesc addend_;
};

KernelPtr make_kernel(const Convolution& convolution, std::span<const TensorDesc> operands) {
  return std::make_shared<DepthwiseKernel>(convolution, operands);
}

std::shared_ptr<const DepthwiseRows> make_rows(const Convolution& convolution,
                                               const TensorDesc& input, const TensorDesc& weight,
                                               const std::vector<int64_t>& output_sizes) {
  return std::make_shared<Rows>(convolution, input, weight, output_sizes);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_kernel);
HWY_EXPORT(make_rows);

namespace {

bool channels_last(const TensorDesc& desc) {
  return desc.sizes.size() == 4 && (desc.strides[1] == 1 || desc.sizes[1] == 1);
}

bool is_depthwise(const Convolution& convolution, const TensorDesc& input, const TensorDesc& weight,
                  int64_t output_channels) {
  return channels_last(input) && !convolution.scale_input && convolution.groups == input.sizes[1] &&
         output_channels == input.sizes[1] && weight.sizes.size() == 4 && weight.sizes[1] == 1;
}

}  // namespace

std::vector<KernelPtr> depthwise_candidates(const Convolution& convolution,
                                            std::span<const TensorDesc> operands) {
  const TensorDesc& output = operands.back();
  if (!channels_last(output) ||
      !is_depthwise(convolution, operands[0], operands[1], output.sizes[1]) ||
      (convolution.epilogue.add && !channels_last(operands[operands.size() - 2])))
    return {};
  return {HWY_DYNAMIC_DISPATCH(make_kernel)(convolution, operands)};
}

std::shared_ptr<const DepthwiseRows> make_depthwise_rows(const Convolution& convolution,
                                                         const TensorDesc& input,
                                                         const TensorDesc& weight,
                                                         const std::vector<int64_t>& output_sizes) {
  if (!is_depthwise(convolution, input, weight, output_sizes[1])) return nullptr;
  return HWY_DYNAMIC_DISPATCH(make_rows)(convolution, input, weight, output_sizes);
}

}  // namespace nimble
#endif
