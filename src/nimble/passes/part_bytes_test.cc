#include "nimble/passes/part_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/family.h"
#include "nimble/kernels/work.h"

namespace nimble {
namespace {

using Bytes = std::vector<std::byte>;

bool holds(const ByteSet& set, int64_t byte) {
  if (byte < set.begin || byte >= set.end) return false;
  return set.period == 0 || (byte - set.begin) % set.period < set.width;
}

template <class Visit>
void for_each_index(const TensorDesc& desc, const Visit& visit) {
  std::vector<int64_t> index(desc.sizes.size());
  for (int64_t i = 0; i < desc.numel(); ++i) {
    int64_t at = desc.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * desc.strides[d];
    visit(index, at * desc.dtype.bytes);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < desc.sizes[d]) break;
      index[d] = 0;
    }
  }
}

// Which dims count the rows and which the columns, written down once more from op_attributes.h.
std::pair<std::vector<size_t>, size_t> counted_dims(const OpAttributes& attributes,
                                                    const TensorDesc& output) {
  const size_t rank = output.sizes.size();
  if (std::holds_alternative<MatMul>(attributes)) {
    std::vector<size_t> dims;
    for (size_t d = 0; d + 1 < rank; ++d) dims.push_back(d);
    return {dims, rank - 1};
  }
  if (std::holds_alternative<Attention>(attributes)) return {{0, 1}, 2};
  if (std::holds_alternative<GroupNorm>(attributes)) return {{0}, 1};
  if (std::holds_alternative<Embedding>(attributes)) {
    TensorDesc outer = output;  // as the rows of a tensor whose rank is not that of an image
    outer.sizes.back() = 2;
    outer.strides.back() = -1;
    while (outer.sizes.size() < 5) {
      outer.sizes.insert(outer.sizes.begin(), 1);
      outer.strides.insert(outer.strides.begin(), 1);
    }
    std::vector<size_t> dims;
    for (size_t d : row_dims(outer))
      if (d + rank >= outer.sizes.size()) dims.push_back(d + rank - outer.sizes.size());
    return {dims, rank - 1};
  }
  if (std::holds_alternative<ConvolutionBackwardWeight>(attributes)) return {{0}, 1};
  if (std::holds_alternative<ChainSums>(attributes) ||
      std::holds_alternative<ChannelMoments>(attributes) ||
      std::holds_alternative<NllLossGradient>(attributes) ||
      std::holds_alternative<EmbeddingGradient>(attributes))
    return {{0}, 0};
  const bool is_image_op = std::holds_alternative<Convolution>(attributes) ||
                           std::holds_alternative<ConvolutionBackwardInput>(attributes) ||
                           std::holds_alternative<SeparableConvolution>(attributes) ||
                           std::holds_alternative<Pool>(attributes) ||
                           std::holds_alternative<AdaptivePool>(attributes) ||
                           std::holds_alternative<Resize>(attributes) ||
                           std::holds_alternative<MaxPoolIndices>(attributes) ||
                           std::holds_alternative<PoolGradient>(attributes) ||
                           std::holds_alternative<AdaptivePoolGradient>(attributes);
  if (is_image_op) return {{0, 2}, 1};
  return {row_dims(output), rank == 4 ? 1 : rank - 1};
}

bool is_in_part(const Part& part, const std::vector<int64_t>& index, const TensorDesc& desc,
                const std::pair<std::vector<size_t>, size_t>& dims) {
  int64_t row = 0;
  for (size_t d : dims.first) row = row * desc.sizes[d] + index[d];
  if (row < part.row_begin || row >= part.row_end) return false;
  if (index.empty() || std::count(dims.first.begin(), dims.first.end(), dims.second)) return true;
  if (dims.second >= index.size()) return part.column_begin == 0;  // a bias's gradient
  return index[dims.second] >= part.column_begin && index[dims.second] < part.column_end;
}

// The same for an image that a chain writes on the way to sums of blocks.
bool is_in_block(const Part& part, const std::vector<int64_t>& index, const TensorDesc& image,
                 int64_t blocks) {
  int64_t row = 0;
  int64_t rows = 1;
  for (size_t d = 0; d < index.size(); ++d) {
    if (image.sizes.size() == 4 ? d % 2 == 1 : d + 1 == index.size()) continue;
    row = row * image.sizes[d] + index[d];
    rows *= image.sizes[d];
  }
  return row >= part.row_begin * rows / blocks && row < part.row_end * rows / blocks;
}

void fill(Bytes& bytes, const TensorDesc& desc, std::mt19937& random) {
  for_each_index(desc, [&](const auto&, int64_t at) {
    if (desc.dtype.name == "float32") {
      const float value = static_cast<float>(random() % 1000) / 500 - 1;
      std::memcpy(bytes.data() + at, &value, sizeof value);
    } else {
      bytes[at] = static_cast<std::byte>(random() % 7);  // a small number of any size
    }
  });
}

// Whatever is outside of the set becomes NaN, or 0 where numbers are indices.
void poison(Bytes& bytes, const TensorDesc& desc, const ByteSet& set) {
  const bool is_float = desc.dtype.name == "float32";
  for (size_t i = 0; i < bytes.size(); ++i)
    if (!holds(set, static_cast<int64_t>(i)))
      bytes[i] = static_cast<std::byte>(is_float ? 0xff : 0);
}

std::pair<int64_t, int64_t> random_range(int64_t whole, int64_t size, int64_t grain,
                                         std::mt19937& random) {
  if (grain == 0 || size != whole) return {0, whole};
  const int64_t grains = (size + grain - 1) / grain;
  const auto begin = static_cast<int64_t>(random() % grains);
  const auto end = begin + 1 + static_cast<int64_t>(random() % (grains - begin));
  return {begin * grain, std::min(end * grain, size)};
}

// For plain loops, several times over.
bool is_large(const KernelCase& test) {
  int64_t elements = 0;
  for (const TensorDesc& desc : test.operands) elements += desc.numel();
  return elements > 20000 || flops(test.attributes, test.operands) > 2e6;
}

class PartBytesTest : public ::testing::TestWithParam<KernelFamily> {};

TEST_P(PartBytesTest, APartNeedsNoOtherBytesAndWritesNoOthers) {
  size_t tried = 0;
  const std::vector<KernelCase> cases = GetParam().test_cases();
  for (size_t c = 0; c < cases.size(); ++c) {
    const auto& [attributes, operands] = cases[c];
    SCOPED_TRACE(::testing::Message() << "case " << c << " " << describe(attributes));
    const auto kernels = kernel_candidates(attributes, operands);
    if (kernels.empty() || operands.back().numel() == 0 || is_large(cases[c])) continue;
    const Work work = kernels.front()->work();
    const Part whole = whole_part(attributes, operands);
    ASSERT_TRUE(work.row_grain == 0 || work.rows == whole.row_end);
    ASSERT_TRUE(work.column_grain == 0 || work.columns == whole.column_end);
    const size_t first_output = operands.size() - output_count(attributes);
    const size_t first_updated = operands.size() - updated_count(attributes);
    const auto* sums = std::get_if<ChainSums>(&attributes);
    const auto dims = counted_dims(attributes, operands[first_output]);
    std::mt19937 random(static_cast<unsigned>(c));
    std::vector<Bytes> clean;
    for (const TensorDesc& desc : operands) {
      clean.emplace_back(desc.end_byte());
      fill(clean.back(), desc, random);
    }
    const auto compute = [&](std::vector<Bytes> memory) {
      std::vector<void*> data;
      for (size_t i = 0; i < operands.size(); ++i)
        data.push_back(memory[i].data() + operands[i].begin_byte());
      EXPECT_TRUE(compute_reference(attributes, operands, data.data()));
      return memory;
    };
    const std::vector<Bytes> expected = compute(clean);
    for (int round = 0; round < 4; ++round) {
      Part part;
      std::tie(part.row_begin, part.row_end) =
          random_range(whole.row_end, work.rows, work.row_grain, random);
      std::tie(part.column_begin, part.column_end) =
          random_range(whole.column_end, work.columns, work.column_grain, random);
      std::vector<Bytes> poisoned = clean;
      std::vector<ByteSet> sets;
      for (size_t i = 0; i < operands.size(); ++i) {
        sets.push_back(part_bytes(attributes, operands, i, part));
        if (i < first_output || i >= first_updated) poison(poisoned[i], operands[i], sets[i]);
        const ByteSet all = bytes_of(operands[i]);
        ASSERT_TRUE(sets[i].empty() || (all.begin <= sets[i].begin && sets[i].end <= all.end));
      }
      const std::vector<Bytes> actual = compute(std::move(poisoned));
      ++tried;
      for (size_t i = first_output; i < operands.size(); ++i) {
        const TensorDesc& desc = operands[i];
        for_each_index(desc, [&](const std::vector<int64_t>& index, int64_t at) {
          const bool in_part = !sums ? is_in_part(part, index, operands[first_output], dims)
                               : i + sums->sums.size() < operands.size()
                                   ? is_in_block(part, index, desc, operands.back().sizes[0])
                                   : is_in_part(part, index, desc, dims);
          if (!in_part) return;
          for (int64_t byte = at; byte < at + desc.dtype.bytes; ++byte) {
            ASSERT_TRUE(holds(sets[i], byte)) << "operand " << i;
            ASSERT_EQ(actual[i][byte], expected[i][byte])
                << "operand " << i << " rows " << part.row_begin << " to " << part.row_end
                << " columns " << part.column_begin << " to " << part.column_end;
          }
        });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(tried, 0U);
}

INSTANTIATE_TEST_SUITE_P(Families, PartBytesTest,
                         ::testing::ValuesIn(kernel_families().begin(), kernel_families().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PartBytes, AConvolutionReadsTheRowsUnderItsWindows) {
  const Convolution convolution{.stride = {2, 2}, .padding = {1, 1}};
  const std::vector<TensorDesc> operands = {cases::image(1, 8, 10, 6), cases::dense({4, 8, 3, 3}),
                                            cases::image(1, 4, 5, 3, 10)};
  const int64_t row = 6 * 8 * 4;
  EXPECT_EQ(part_bytes(convolution, operands, 0, {0, 2, 0, 4}), (ByteSet{0, 4 * row, 0, 0}));
  EXPECT_EQ(part_bytes(convolution, operands, 0, {2, 4, 0, 4}), (ByteSet{3 * row, 8 * row, 0, 0}));
  EXPECT_EQ(part_bytes(convolution, operands, 0, {4, 5, 0, 4}), (ByteSet{7 * row, 10 * row, 0, 0}));
  EXPECT_EQ(part_bytes(convolution, operands, 2, {2, 4, 0, 2}),
            (ByteSet{2 * 120, 2 * 120 + 5 * 40 + 8, 40, 8}));
}

TEST(PartBytes, AScaledConvolutionReadsTheFactorsOfItsImages) {
  const Convolution convolution{.bias = true, .scale_input = true, .epilogue = {.add = true}};
  TensorDesc scale = cases::image(3, 8, 5, 6);
  scale.strides = {8, 1, 0, 0};
  const std::vector<TensorDesc> operands = {cases::image(3, 8, 5, 6), cases::dense({4, 8, 1, 1}),
                                            cases::dense({4}),        scale,
                                            cases::image(3, 4, 5, 6), cases::image(3, 4, 5, 6)};
  EXPECT_EQ(part_bytes(convolution, operands, 3, {0, 2, 0, 4}), (ByteSet{0, 32, 0, 0}));
  EXPECT_EQ(part_bytes(convolution, operands, 3, {5, 10, 0, 2}), (ByteSet{32, 64, 0, 0}));
  EXPECT_EQ(part_bytes(convolution, operands, 3, {9, 11, 0, 4}), (ByteSet{32, 96, 0, 0}));
  const int64_t row = 6 * 4 * 4;  // of the addend
  EXPECT_EQ(part_bytes(convolution, operands, 4, {9, 11, 0, 4}),
            (ByteSet{9 * row, 11 * row, 0, 0}));
}

TEST(PartBytes, ADepthwiseConvolutionReadsItsChannels) {
  const Convolution convolution{.padding = {1, 1}, .groups = 8};
  const std::vector<TensorDesc> operands = {cases::image(1, 8, 5, 6), cases::dense({8, 1, 3, 3}),
                                            cases::image(1, 8, 5, 6)};
  EXPECT_EQ(part_bytes(convolution, operands, 0, {0, 5, 4, 8}), (ByteSet{16, 960, 32, 16}));
  EXPECT_EQ(part_bytes(convolution, operands, 2, {0, 5, 4, 8}), (ByteSet{16, 960, 32, 16}));
}

TEST(PartBytes, AGradientOfAnInputReadsTheWindowsOverItsRows) {
  const ConvolutionBackwardInput backward{.stride = {2, 2}, .padding = {1, 1}};
  const std::vector<TensorDesc> operands = {cases::image(2, 4, 5, 3), cases::dense({4, 8, 3, 3}),
                                            cases::image(2, 8, 10, 6)};
  const int64_t row = 3 * 4 * 4;
  EXPECT_EQ(part_bytes(backward, operands, 0, {0, 1, 0, 8}), (ByteSet{0, row, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 0, {1, 2, 0, 8}), (ByteSet{0, 2 * row, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 0, {2, 4, 0, 4}), (ByteSet{row, 3 * row, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 0, {9, 11, 0, 8}), (ByteSet{4 * row, 6 * row, 0, 0}));
  const int64_t input_row = 6 * 8 * 4;
  EXPECT_EQ(part_bytes(backward, operands, 2, {2, 4, 0, 8}),
            (ByteSet{2 * input_row, 4 * input_row, 0, 0}));
}

TEST(PartBytes, AGradientOfAWeightReadsItsChannelsOfAllImages) {
  const ConvolutionBackwardWeight backward{.padding = {1, 1}, .bias = true};
  const std::vector<TensorDesc> operands = {cases::image(2, 8, 5, 6), cases::image(2, 4, 5, 6),
                                            cases::dense({4, 8, 3, 3}), cases::dense({4})};
  const int64_t filter = 8 * 9 * 4;
  EXPECT_EQ(part_bytes(backward, operands, 0, {1, 3, 0, 8}), (ByteSet{0, 1920, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 1, {1, 3, 0, 8}), (ByteSet{4, 956, 16, 8}));
  EXPECT_EQ(part_bytes(backward, operands, 2, {1, 3, 0, 8}), (ByteSet{filter, 3 * filter, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 3, {1, 3, 0, 8}), (ByteSet{4, 12, 0, 0}));
  EXPECT_EQ(part_bytes(backward, operands, 0, {1, 3, 4, 8}), (ByteSet{16, 1920, 32, 16}));
  EXPECT_TRUE(part_bytes(backward, operands, 3, {1, 3, 4, 8}).empty());
}

TEST(PartBytes, RowsOfSeveralImagesAreOneStretch) {
  const std::vector<TensorDesc> operands = {cases::image(3, 8, 5, 6), cases::image(3, 8, 5, 6)};
  const int64_t row = 6 * 8 * 4;
  EXPECT_EQ(part_bytes(Pool{.kernel = {3, 3}, .padding = {1, 1}}, operands, 1, {3, 8, 0, 8}),
            (ByteSet{3 * row, 8 * row, 0, 0}));
  EXPECT_EQ(part_bytes(Pool{.kernel = {3, 3}, .padding = {1, 1}}, operands, 0, {3, 8, 0, 8}),
            (ByteSet{2 * row, 9 * row, 0, 0}));
}

TEST(PartBytes, ColumnsOfAGlobalAverageReadAllPixels) {
  const std::vector<TensorDesc> operands = {cases::image(1, 8, 5, 6), cases::image(1, 8, 1, 1)};
  const Reduce reduce{.kind = Reduce::Kind::kMean, .dims = {2, 3}};
  EXPECT_EQ(part_bytes(reduce, operands, 0, {0, 1, 4, 8}), (ByteSet{16, 960, 32, 16}));
  EXPECT_EQ(part_bytes(reduce, operands, 1, {0, 1, 4, 8}), (ByteSet{16, 32, 0, 0}));
  EXPECT_EQ(part_bytes(AdaptivePool{}, operands, 0, {0, 1, 4, 8}), (ByteSet{16, 960, 32, 16}));
}

TEST(PartBytes, HeadsOfAttentionLieInterleaved) {
  // [1, 4 heads, 6 tokens, 8] in the order tokens, heads.
  TensorDesc q = cases::dense({1, 6, 4, 8});
  std::swap(q.sizes[1], q.sizes[2]);
  std::swap(q.strides[1], q.strides[2]);
  const std::vector<TensorDesc> operands = {q, q, q, q};
  EXPECT_EQ(part_bytes(Attention{}, operands, 3, {1, 3, 0, 6}), (ByteSet{32, 736, 128, 64}));
  EXPECT_EQ(part_bytes(Attention{}, operands, 0, {0, 4, 2, 4}), (ByteSet{256, 512, 0, 0}));
  EXPECT_EQ(part_bytes(Attention{}, operands, 1, {0, 4, 2, 4}), (ByteSet{0, 768, 0, 0}));
}

}  // namespace
}  // namespace nimble
