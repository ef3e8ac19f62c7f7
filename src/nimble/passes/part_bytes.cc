#include "nimble/passes/part_bytes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "nimble/kernels/work.h"

namespace nimble {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

TensorDesc narrowed(TensorDesc desc, size_t dim, Range range) {
  range.begin = std::clamp<int64_t>(range.begin, 0, desc.sizes[dim]);
  range.end = std::clamp<int64_t>(range.end, range.begin, desc.sizes[dim]);
  desc.offset += range.begin * desc.strides[dim];
  desc.sizes[dim] = range.end - range.begin;
  return desc;
}

// The indices of a dim in the rows [range): all that occur, perhaps some more.
struct RowDim {
  int64_t size = 0;
  int64_t stride = 0;
  Range range;
};

// Row dims, joined where they continue each other; then the range of each.
std::vector<RowDim> ranges_of_rows(const TensorDesc& desc, const std::vector<size_t>& dims,
                                   Range rows) {
  std::vector<RowDim> joined;
  for (size_t d : dims) {
    if (desc.sizes[d] == 1) continue;
    if (!joined.empty() && joined.back().stride == desc.sizes[d] * desc.strides[d])
      joined.back() = {joined.back().size * desc.sizes[d], desc.strides[d], {}};
    else
      joined.push_back({desc.sizes[d], desc.strides[d], {}});
  }
  // From the innermost: the index of the first and of the last row.
  int64_t first = rows.begin;
  int64_t last = rows.end - 1;
  for (size_t i = joined.size(); i-- > 0;) {
    joined[i].range = {first % joined[i].size, last % joined[i].size + 1};
    first /= joined[i].size;
    last /= joined[i].size;
    if (first == last) continue;
    joined[i].range = {0, joined[i].size};  // an outer index changes on the way
  }
  return joined;
}

// The bytes of some rows: indices of `dims` counted in this order, all of the others.
ByteSet bytes_of_rows(const TensorDesc& desc, const std::vector<size_t>& dims, Range rows) {
  if (rows.begin >= rows.end || desc.numel() == 0) return {};
  TensorDesc some = desc;
  for (size_t d : dims) some.sizes[d] = 1;
  TensorDesc first_row = some;
  TensorDesc last_row = some;
  int64_t first = rows.begin;
  int64_t last = rows.end - 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t size = desc.sizes[dims[i]];
    first_row.offset += first % size * desc.strides[dims[i]];
    last_row.offset += last % size * desc.strides[dims[i]];
    first /= size;
    last /= size;
  }
  const std::vector<RowDim> joined = ranges_of_rows(desc, dims, rows);
  bool rising = true;  // whether a later row lies behind
  int64_t reach = 0;
  for (size_t i = joined.size(); i-- > 0;) {
    rising &= joined[i].stride >= reach;
    reach += (joined[i].size - 1) * joined[i].stride;
    some.sizes.push_back(joined[i].range.end - joined[i].range.begin);
    some.strides.push_back(joined[i].stride);
    some.offset += joined[i].range.begin * joined[i].stride;
  }
  ByteSet bytes = bytes_of(some);
  if (!rising) return bytes;
  const int64_t begin = first_row.begin_byte();
  if (bytes.period == 0 || (begin - bytes.begin) % bytes.period == 0) bytes.begin = begin;
  bytes.end = std::min(bytes.end, last_row.end_byte());
  return bytes;
}

// As `desc`, with the sizes of what it is broadcast to.
TensorDesc broadcast(TensorDesc desc, const std::vector<int64_t>& sizes, size_t dims) {
  for (size_t d = 0; d < dims; ++d)
    if (desc.sizes[d] == 1 && sizes[d] != 1) {
      desc.sizes[d] = sizes[d];
      desc.strides[d] = 0;
    }
  return desc;
}

std::vector<size_t> first_dims(size_t count) {
  std::vector<size_t> dims(count);
  std::iota(dims.begin(), dims.end(), size_t{0});
  return dims;
}

const std::vector<size_t> kImageRows = {0, 2};
constexpr size_t kChannels = 1;

// One overload for each kind of op says what its rows are (row_dims_of), and what a part touches.
struct PartBytes {
  std::span<const TensorDesc> operands;
  size_t operand = 0;
  Part part = {};

  const TensorDesc& desc() const { return operands[operand]; }
  const TensorDesc& output() const { return operands.back(); }
  bool is_output() const { return operand + 1 == operands.size(); }
  Range rows() const { return {part.row_begin, part.row_end}; }
  Range columns() const { return {part.column_begin, part.column_end}; }
  ByteSet all() const { return bytes_of(desc()); }

  // Output, addend.
  ByteSet image_part() const {
    return bytes_of_rows(narrowed(desc(), kChannels, columns()), kImageRows, rows());
  }

  // One factor per channel, for the images of these rows.
  ByteSet image_scale() const {
    const int64_t height = output().sizes[2];
    if (part.row_begin >= part.row_end || height == 0) return {};
    return bytes_of(
        narrowed(desc(), 0, {part.row_begin / height, (part.row_end - 1) / height + 1}));
  }

  // `reach` maps an output row of an image to the rows of the input that it needs.
  template <class Reach>
  ByteSet input_image(const Reach& reach, Range channels) const {
    const TensorDesc& input = desc();
    const int64_t out_height = output().sizes[2];
    const int64_t height = input.sizes[2];
    if (part.row_begin >= part.row_end || out_height == 0) return {};
    const int64_t last = part.row_end - 1;
    const auto clip = [&](int64_t row) { return std::clamp<int64_t>(row, 0, height); };
    const Range needed = {
        part.row_begin / out_height * height + clip(reach(part.row_begin % out_height).begin),
        last / out_height * height + clip(reach(last % out_height).end)};
    return bytes_of_rows(narrowed(input, kChannels, channels), kImageRows, needed);
  }

  static auto window(int64_t stride, int64_t padding, int64_t dilation, int64_t size) {
    return [=](int64_t row) {
      const int64_t begin = row * stride - padding;
      return Range{begin, begin + (size - 1) * dilation + 1};
    };
  }

  ByteSet operator()(const Convolution& convolution) const {
    if (operand == 1 || (operand == 2 && convolution.bias)) return all();
    if (operand == convolution.scale_operand() && convolution.scale_input) return image_scale();
    if (operand != 0) return image_part();
    // Of each group that has one of these output channels, all input channels.
    const int64_t group_in = operands[0].sizes[1] / convolution.groups;
    const int64_t group_out = output().sizes[1] / convolution.groups;
    if (group_out == 0) return {};
    const Range groups = {part.column_begin / group_out,
                          (part.column_end + group_out - 1) / group_out};
    return input_image(window(convolution.stride[0], convolution.padding[0],
                              convolution.dilation[0], operands[1].sizes[2]),
                       {groups.begin * group_in, groups.end * group_in});
  }

  ByteSet operator()(const ConvolutionBackwardInput& backward) const {
    if (operand == 1) return all();
    if (operand == 2) return image_part();
    // Of each group that has one of these input channels, all output channels.
    const int64_t group_in = operands[1].sizes[1];
    const int64_t group_out = operands[1].sizes[0] / backward.groups;
    if (group_in == 0) return {};
    const Range groups = {part.column_begin / group_in,
                          (part.column_end + group_in - 1) / group_in};
    const int64_t stride = backward.stride[0];
    const int64_t reach = (operands[1].sizes[2] - 1) * backward.dilation[0];
    return input_image(
        [&](int64_t row) {
          const int64_t last = row + backward.padding[0];  // the window that begins here
          return Range{std::max<int64_t>(last - reach + stride - 1, 0) / stride, last / stride + 1};
        },
        {groups.begin * group_out, groups.end * group_out});
  }

  // Sums over all images.
  ByteSet operator()(const ConvolutionBackwardWeight& backward) const {
    if (operand == 3)
      return part.column_begin > 0 ? ByteSet{} : bytes_of(narrowed(desc(), 0, rows()));
    if (operand == 2) return bytes_of(narrowed(narrowed(desc(), 0, rows()), 1, columns()));
    if (operand == 1) return bytes_of(narrowed(desc(), kChannels, rows()));
    const int64_t group_in = operands[2].sizes[1];
    const int64_t group_out = operands[2].sizes[0] / backward.groups;
    if (group_out == 0) return {};
    const Range groups = {part.row_begin / group_out, (part.row_end + group_out - 1) / group_out};
    if (groups.end - groups.begin > 1)
      return bytes_of(
          narrowed(desc(), kChannels, {groups.begin * group_in, groups.end * group_in}));
    const int64_t first = groups.begin * group_in;
    return bytes_of(
        narrowed(desc(), kChannels, {first + part.column_begin, first + part.column_end}));
  }

  ByteSet operator()(const SeparableConvolution& both) const {
    const size_t constants = 2 + both.depthwise.bias + both.pointwise.bias;
    if (operand > constants) return image_part();
    if (operand != 0) return all();
    const Convolution& depthwise = both.depthwise;
    return input_image(window(depthwise.stride[0], depthwise.padding[0], depthwise.dilation[0],
                              operands[1].sizes[2]),
                       {0, operands[0].sizes[1]});
  }

  ByteSet operator()(const Pool& pool) const {
    if (operand != 0) return image_part();
    return input_image(window(pool.stride[0], pool.padding[0], pool.dilation[0], pool.kernel[0]),
                       columns());
  }

  ByteSet operator()(const AdaptivePool&) const {
    if (operand != 0) return image_part();
    const int64_t in = operands[0].sizes[2];
    const int64_t out = output().sizes[2];
    return input_image(
        [=](int64_t row) {
          return Range{row * in / out, ((row + 1) * in + out - 1) / out};
        },
        columns());
  }

  ByteSet operator()(const Resize& resize) const {
    if (operand != 0) return image_part();
    const auto in = static_cast<double>(operands[0].sizes[2]);
    const auto out = static_cast<double>(output().sizes[2]);
    const double step = resize.align_corners   ? (out > 1 ? (in - 1) / (out - 1) : 0)
                        : resize.scale[0] != 0 ? resize.scale[0]
                                               : in / out;
    // A pixel to either side more than needed: for rounding, whichever way. What lies outside of
    // the input is taken from its border.
    return input_image(
        [=](int64_t row) {
          const double at = static_cast<double>(row) * step;
          const auto begin = static_cast<int64_t>(std::floor(at)) - 2;
          const auto end = static_cast<int64_t>(std::ceil(at + step)) + 3;
          return Range{std::min(begin, static_cast<int64_t>(in) - 1), std::max<int64_t>(end, 1)};
        },
        columns());
  }

  ByteSet operator()(const MatMul& matmul) const {
    const size_t rank = output().sizes.size();
    if (operand == 0)
      return bytes_of_rows(broadcast(desc(), output().sizes, rank - 1), first_dims(rank - 1),
                           rows());
    if (operand != 1) {  // output, addend, bias
      const TensorDesc like_output = broadcast(desc(), output().sizes, rank);
      return bytes_of_rows(narrowed(like_output, rank - 1, columns()), first_dims(rank - 1),
                           rows());
    }
    if (matmul.constant_b) return all();
    const int64_t matrix_rows = std::max<int64_t>(output().sizes[rank - 2], 1);
    const TensorDesc b = broadcast(desc(), output().sizes, rank - 2);
    return bytes_of_rows(
        narrowed(b, rank - 1, columns()), first_dims(rank - 2),
        {part.row_begin / matrix_rows, (part.row_end + matrix_rows - 1) / matrix_rows});
  }

  // The dim that is divided into columns, if it is not one that counts rows.
  std::optional<size_t> column_dim(const TensorDesc& counted) const {
    const size_t rank = counted.sizes.size();
    if (rank == 0) return std::nullopt;
    const size_t dim = rank == 4 ? kChannels : rank - 1;
    const std::vector<size_t> dims = row_dims(counted);
    if (std::find(dims.begin(), dims.end(), dim) != dims.end()) return std::nullopt;
    return dim;
  }

  // Operands of the same sizes as the output that counts.
  ByteSet elementwise(const TensorDesc& counted) const {
    const auto dim = column_dim(counted);
    return bytes_of_rows(dim ? narrowed(desc(), *dim, columns()) : desc(), row_dims(counted),
                         rows());
  }

  ByteSet operator()(const Chain& chain) const {
    return elementwise(operands[static_cast<size_t>(chain.inputs)]);
  }
  ByteSet operator()(const Copy&) const { return elementwise(output()); }

  // The indices of each dim that occur in a part of the output.
  std::vector<Range> box() const {
    std::vector<Range> ranges;
    for (int64_t size : output().sizes) ranges.push_back({0, size});
    if (const auto dim = column_dim(output())) ranges[*dim] = columns();
    const std::vector<size_t> dims = row_dims(output());
    int64_t first = part.row_begin;
    int64_t last = part.row_end - 1;
    for (size_t i = dims.size(); i-- > 0;) {
      const int64_t size = output().sizes[dims[i]];
      const Range range = {first % size, last % size + 1};
      first /= size;
      last /= size;
      if (first == last) ranges[dims[i]] = range;  // else an outer index changes on the way
    }
    return ranges;
  }

  ByteSet bytes_of_box(const std::vector<Range>& ranges) const {
    TensorDesc some = desc();
    for (size_t d = 0; d < ranges.size(); ++d) some = narrowed(some, d, ranges[d]);
    return bytes_of(some);
  }

  // What a reduction over some dims reads for a part of its output.
  ByteSet reduced_from(const std::vector<size_t>& reduced) const {
    if (part.row_begin >= part.row_end) return {};
    const std::vector<size_t> dims = row_dims(output());
    const bool within_rows = std::none_of(reduced.begin(), reduced.end(), [&](size_t d) {
      return std::find(dims.begin(), dims.end(), d) != dims.end() && desc().sizes[d] != 1;
    });
    if (within_rows) {
      const auto dim = column_dim(output());
      const bool divided = dim && std::find(reduced.begin(), reduced.end(), *dim) == reduced.end();
      return bytes_of_rows(divided ? narrowed(desc(), *dim, columns()) : desc(), dims, rows());
    }
    std::vector<Range> ranges = box();
    for (size_t d : reduced) ranges[d] = {0, desc().sizes[d]};
    return bytes_of_box(ranges);
  }

  ByteSet operator()(const Softmax& softmax) const {
    const size_t rank = output().sizes.size();
    if (is_output() || rank == 0) return elementwise(output());
    return reduced_from({softmax.dim < 0 ? rank + softmax.dim : softmax.dim});
  }

  static std::vector<size_t> last_dims(size_t rank, int64_t count) {
    std::vector<size_t> dims;
    for (size_t d = rank - count; d < rank; ++d) dims.push_back(d);
    return dims;
  }
  // One number for each of the normalised parts, which follow each other as rows do.
  ByteSet statistics(int64_t rows) const {
    if (part.row_begin >= part.row_end) return {};
    const int64_t count = desc().numel();
    const int64_t begin = part.row_begin * count / rows;
    const int64_t end = (part.row_end * count + rows - 1) / rows;
    const int64_t first = desc().begin_byte();
    return {first + begin * desc().dtype.bytes, first + end * desc().dtype.bytes, 0, 0};
  }
  ByteSet operator()(const LayerNorm& norm) const {
    const size_t at = operands.size() - (norm.statistics ? 3 : 1);
    const TensorDesc& result = operands[at];
    if (operand > at) return statistics(row_count(result));
    if (operand != at && operand != 0) return all();
    const PartBytes without{operands.first(at + 1), operand, part};
    return operand == at ? without.elementwise(result)
                         : without.reduced_from(last_dims(result.sizes.size(), norm.dims));
  }
  // Gradient, input, mean, 1 / deviation, [weight], output.
  ByteSet operator()(const LayerNormGradient& norm) const {
    if (is_output()) return elementwise(output());
    if (operand < 2) return reduced_from(last_dims(output().sizes.size(), norm.dims));
    return operand < 4 ? statistics(row_count(output())) : all();
  }

  ByteSet operator()(const Reduce& reduce) const {
    const size_t rank = output().sizes.size();
    if (is_output()) return elementwise(output());
    std::vector<size_t> reduced;
    for (int64_t dim : reduce.dims) reduced.push_back(dim < 0 ? rank + dim : dim);
    if (reduce.dims.empty()) return all();
    return reduced_from(reduced);
  }

  ByteSet operator()(const GroupNorm& norm) const {
    if (operand != 0 && !is_output()) return all();
    Range channels = columns();
    if (!is_output()) {  // whole groups
      const int64_t size = std::max<int64_t>(desc().sizes[1] / norm.groups, 1);
      channels = {channels.begin / size * size, (channels.end + size - 1) / size * size};
    }
    return bytes_of_rows(narrowed(desc(), kChannels, channels), {0}, rows());
  }

  ByteSet operator()(const Embedding&) const {
    if (operand == 1) return all();
    return bytes_of_rows(
        is_output() ? narrowed(desc(), desc().sizes.size() - 1, columns()) : desc(),
        embedding_rows(), rows());
  }

  std::vector<size_t> embedding_rows() const {
    std::vector<size_t> dims = first_dims(output().sizes.size() - 1);
    std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
      const auto stride = [&](size_t d) {
        return output().sizes[d] == 1 ? INT64_MAX : output().strides[d];
      };
      return stride(a) > stride(b);
    });
    return dims;
  }

  ByteSet operator()(const Attention&) const {
    const bool keys = operand == 1 || operand == 2;
    constexpr size_t kQueries = 2;
    return bytes_of_rows(keys ? desc() : narrowed(desc(), kQueries, columns()), {0, 1}, rows());
  }

  ByteSet operator()(const Pad& pad) const {
    if (is_output()) return elementwise(output());
    if (part.row_begin >= part.row_end) return {};
    std::vector<Range> ranges = box();
    for (size_t d = 0; d < ranges.size(); ++d)
      ranges[d] = {ranges[d].begin - pad.begin[d], ranges[d].end - pad.begin[d]};
    return bytes_of_box(ranges);
  }

  ByteSet operator()(const Concatenation&) const { return all(); }

  // The rows of images that are in these blocks, of which there are as many as the output has rows.
  ByteSet in_blocks() const {
    const size_t rank = desc().sizes.size();
    const std::vector<size_t> dims = rank == 4 ? kImageRows : first_dims(rank - 1);
    int64_t count = 1;
    for (size_t d : dims) count *= desc().sizes[d];
    const int64_t blocks = output().sizes[0];
    return bytes_of_rows(desc(), dims,
                         {part.row_begin * count / blocks, part.row_end * count / blocks});
  }
  ByteSet operator()(const ChainSums& sums) const {
    const bool is_image = operand + sums.sums.size() < operands.size();
    return is_image ? in_blocks() : bytes_of_rows(desc(), {0}, rows());
  }
  ByteSet operator()(const ChannelMoments&) const {
    return operand == 0 ? in_blocks() : bytes_of_rows(desc(), {0}, rows());
  }

  ByteSet operator()(const MaxPoolIndices& indices) const { return (*this)(indices.pool); }
  ByteSet operator()(const PoolGradient& gradient) const {
    if (is_output()) return image_part();
    const Pool& pool = gradient.pool;
    const int64_t stride = pool.stride[0];
    const int64_t reach = (pool.kernel[0] - 1) * pool.dilation[0];
    return input_image(
        [&](int64_t row) {
          const int64_t at = row + pool.padding[0];
          return Range{at <= reach ? 0 : (at - reach + stride - 1) / stride, at / stride + 1};
        },
        columns());
  }
  ByteSet operator()(const AdaptivePoolGradient&) const {
    if (is_output()) return image_part();
    const int64_t in = output().sizes[2];
    const int64_t out = desc().sizes[2];
    // The first window that ends behind the row, and the last that begins up to it.
    return input_image(
        [=](int64_t row) {
          return Range{row * out / in, ((row + 1) * out + in - 1) / in};
        },
        columns());
  }
  ByteSet operator()(const SoftmaxGradient& softmax) const {
    return (*this)(Softmax{.dim = softmax.dim, .log = softmax.log});
  }
  ByteSet operator()(const NllLoss&) const { return all(); }
  ByteSet operator()(const NllLossGradient& gradient) const {
    const bool by_row = gradient.loss.reduction == LossReduction::kNone;
    return is_output() || operand == 1 || (operand == 0 && by_row)
               ? bytes_of_rows(desc(), {0}, rows())
               : all();
  }
  ByteSet operator()(const EmbeddingGradient&) const {
    return is_output() ? bytes_of_rows(desc(), {0}, rows()) : all();
  }
  ByteSet operator()(const BatchStatistics&) const {
    return bytes_of(narrowed(desc(), desc().sizes.size() - 1, columns()));
  }
};

// Rows, and how many of them belong to one image, matrix or head.
struct RowCounts {
  int64_t rows = 1;
  int64_t of_one = 1;
  int64_t columns = 1;
};

struct CountRows {
  std::span<const TensorDesc> operands;

  const std::vector<int64_t>& sizes() const { return operands.back().sizes; }

  static RowCounts count(const TensorDesc& desc, const std::vector<size_t>& dims, int64_t columns) {
    RowCounts counts;
    counts.columns = columns;
    for (size_t d : dims) counts.rows *= desc.sizes[d];
    for (size_t d : dims)
      if (desc.sizes[d] != 1) counts.of_one = desc.sizes[d];
    return counts;
  }
  RowCounts image() const { return count(operands.back(), kImageRows, sizes()[1]); }
  RowCounts by_row_dims(const TensorDesc& output) const {
    const auto dim = PartBytes{operands}.column_dim(output);
    return count(output, row_dims(output), dim ? output.sizes[*dim] : 1);
  }

  RowCounts operator()(const Convolution&) const { return image(); }
  RowCounts operator()(const SeparableConvolution&) const { return image(); }
  RowCounts operator()(const ConvolutionBackwardInput&) const { return image(); }
  RowCounts operator()(const ConvolutionBackwardWeight&) const {
    return count(operands[2], {0}, operands[2].sizes[1]);
  }
  RowCounts operator()(const Pool&) const { return image(); }
  RowCounts operator()(const AdaptivePool&) const { return image(); }
  RowCounts operator()(const Resize&) const { return image(); }
  RowCounts operator()(const MatMul&) const {
    return count(operands.back(), first_dims(sizes().size() - 1), sizes().back());
  }
  RowCounts operator()(const Attention&) const {
    return count(operands.back(), {0, 1}, sizes()[2]);
  }
  RowCounts operator()(const GroupNorm&) const { return count(operands.back(), {0}, sizes()[1]); }
  RowCounts operator()(const Embedding&) const {
    return count(operands.back(), PartBytes{operands}.embedding_rows(), sizes().back());
  }
  RowCounts operator()(const Chain& chain) const {
    return by_row_dims(operands[static_cast<size_t>(chain.inputs)]);
  }
  RowCounts operator()(const MaxPoolIndices&) const { return image(); }
  RowCounts operator()(const PoolGradient&) const { return image(); }
  RowCounts operator()(const AdaptivePoolGradient&) const { return image(); }
  RowCounts operator()(const LayerNorm& norm) const {
    return by_row_dims(operands[operands.size() - (norm.statistics ? 3 : 1)]);
  }
  RowCounts operator()(const NllLossGradient&) const { return count(operands.back(), {0}, 1); }
  RowCounts operator()(const EmbeddingGradient&) const { return count(operands.back(), {0}, 1); }
  RowCounts operator()(const NllLoss&) const { return {}; }
  RowCounts operator()(const ChainSums&) const { return count(operands.back(), {0}, 1); }
  RowCounts operator()(const ChannelMoments&) const { return count(operands.back(), {0}, 1); }
  template <class Other>
  RowCounts operator()(const Other&) const {
    return by_row_dims(operands.back());
  }
};

}  // namespace

Part whole_part(const OpAttributes& attributes, std::span<const TensorDesc> operands) {
  const RowCounts counts = std::visit(CountRows{operands}, attributes);
  return {0, counts.rows, 0, counts.columns};
}

int64_t rows_of_one(const OpAttributes& attributes, std::span<const TensorDesc> operands) {
  return std::visit(CountRows{operands}, attributes).of_one;
}

ByteSet part_bytes(const OpAttributes& attributes, std::span<const TensorDesc> operands,
                   size_t operand, const Part& part) {
  return std::visit(PartBytes{operands, operand, part}, attributes);
}

}  // namespace nimble
