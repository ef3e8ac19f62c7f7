#include "nimble/passes/rewrite.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "nimble/graph/relink.h"
#include "nimble/passes/images.h"

namespace nimble {
namespace {

DType float32() {
  return {6, 4, "float32"};
}

TensorDesc strided(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) {
  return {.dtype = float32(),
          .sizes = std::move(sizes),
          .strides = std::move(strides),
          .offset = offset};
}

// Where the elements are, in logical order.
std::vector<int64_t> places(const TensorDesc& desc) {
  std::vector<int64_t> result;
  std::vector<int64_t> index(desc.sizes.size());
  for (int64_t i = 0; i < desc.numel(); ++i) {
    int64_t at = desc.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * desc.strides[d];
    result.push_back(at);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < desc.sizes[d]) break;
      index[d] = 0;
    }
  }
  return result;
}

int64_t pick(std::mt19937& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<unsigned>(most - least + 1));
}

std::vector<int64_t> random_sizes(std::mt19937& random, size_t rank) {
  std::vector<int64_t> sizes(rank);
  for (int64_t& size : sizes) size = pick(random, 1, 4);
  return sizes;
}

// Any order of the dims, sometimes with gaps between the steps of some.
TensorDesc random_layout(std::mt19937& random, const std::vector<int64_t>& sizes, bool gaps) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  TensorDesc desc = row_major(float32(), sizes);
  int64_t stride = 1;
  for (size_t d : order) {
    if (gaps && random() % 3 == 0) stride += pick(random, 1, 3);
    desc.strides[d] = stride;
    stride *= sizes[d];
  }
  if (gaps) desc.offset = pick(random, 0, 3);
  return desc;
}

// A slice, permutation, split, expansion or reshape of a tensor.
TensorDesc random_view(std::mt19937& random, TensorDesc view) {
  for (int step = 0; step < 3; ++step) {
    const size_t d = view.sizes.empty() ? 0 : random() % view.sizes.size();
    switch (view.sizes.empty() ? 5 : random() % 6) {
      case 0: {
        const int64_t begin = pick(random, 0, view.sizes[d] - 1);
        const int64_t every = pick(random, 1, 2);
        view.offset += begin * view.strides[d];
        view.sizes[d] = pick(random, 1, (view.sizes[d] - begin + every - 1) / every);
        view.strides[d] *= every;
        break;
      }
      case 1: {
        const size_t e = random() % view.sizes.size();
        std::swap(view.sizes[d], view.sizes[e]);
        std::swap(view.strides[d], view.strides[e]);
        break;
      }
      case 2:
        if (view.sizes[d] == 4) {
          view.sizes[d] = 2;
          view.sizes.insert(view.sizes.begin() + d, 2);
          view.strides.insert(view.strides.begin() + d, 2 * view.strides[d]);
        }
        break;
      case 3:
        if (view.sizes[d] == 1) {
          view.sizes[d] = 3;
          view.strides[d] = 0;
        }
        break;
      case 4:
        if (auto flat = reshaped(view, {view.numel()})) view = *flat;
        break;
      default:
        view.sizes.insert(view.sizes.begin() + d, 1);
        view.strides.insert(view.strides.begin() + d, pick(random, 0, 9));
    }
  }
  return view;
}

TEST(Rewrite, AMovedViewHasTheSameLogicalElements) {
  std::mt19937 random(1);
  int moved_views = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto sizes = random_sizes(random, random() % 5);
    const TensorDesc from = random_layout(random, sizes, random() % 2);
    const TensorDesc to = random_layout(random, sizes, random() % 2);
    const TensorDesc view = random_view(random, from);
    const auto moved = moved_view(view, from, to);
    if (!moved) continue;
    ++moved_views;
    std::map<int64_t, int64_t> moved_to;
    const auto old_places = places(from);
    const auto new_places = places(to);
    for (size_t i = 0; i < old_places.size(); ++i) moved_to[old_places[i]] = new_places[i];
    const auto expected = places(view);
    const auto actual = places(*moved);
    ASSERT_EQ(moved->sizes, view.sizes);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(actual[i], moved_to.at(expected[i])) << "round " << round;
  }
  EXPECT_GT(moved_views, 15000);
}

TEST(Rewrite, ViewsOfImagesMoveToChannelsLast) {
  const TensorDesc from = row_major(float32(), {2, 6, 4, 5});
  const TensorDesc to = channels_last(float32(), {2, 6, 4, 5});
  EXPECT_EQ(moved_view(from, from, to), to);
  // Channels 2 to 4.
  EXPECT_EQ(moved_view(strided({2, 3, 4, 5}, {120, 20, 5, 1}, 40), from, to),
            strided({2, 3, 4, 5}, {120, 1, 30, 6}, 2));
  // Without the first row and column.
  EXPECT_EQ(moved_view(strided({2, 6, 3, 4}, {120, 20, 5, 1}, 6), from, to),
            strided({2, 6, 3, 4}, {120, 1, 30, 6}, 36));
  // Channels in two groups, exchanged.
  EXPECT_EQ(moved_view(strided({2, 3, 2, 4, 5}, {120, 20, 60, 5, 1}), from, to),
            strided({2, 3, 2, 4, 5}, {120, 1, 3, 30, 6}));
  // Pixels as rows of a matrix.
  EXPECT_EQ(moved_view(strided({2, 20, 6}, {120, 1, 20}), from, to),
            strided({2, 20, 6}, {120, 6, 1}));
  // Broadcast.
  EXPECT_EQ(moved_view(strided({2, 6, 7}, {120, 20, 0}), from, to),
            strided({2, 6, 7}, {120, 1, 0}));
}

TEST(Rewrite, AFlattenedImageDoesNotMove) {
  const TensorDesc from = row_major(float32(), {1, 6, 4, 5});
  const TensorDesc to = channels_last(float32(), {1, 6, 4, 5});
  EXPECT_EQ(moved_view(strided({1, 120}, {120, 1}), from, to), std::nullopt);
  EXPECT_EQ(moved_view(strided({1, 3, 40}, {120, 40, 1}), from, to), std::nullopt);
  // Past the end, or of another element type.
  EXPECT_EQ(moved_view(strided({7}, {20}), from, to), std::nullopt);
  EXPECT_EQ(moved_view(strided({2, 6}, {120, 20}), from, to), std::nullopt);
  TensorDesc integers = from;
  integers.dtype = {4, 8, "int64"};
  EXPECT_EQ(moved_view(integers, from, to), std::nullopt);
}

TEST(Rewrite, AFlattenedImageOfOnePixelMoves) {
  const TensorDesc from = row_major(float32(), {2, 6, 1, 1});
  const TensorDesc to = channels_last(float32(), {2, 6, 1, 1});
  EXPECT_EQ(moved_view(strided({2, 6}, {6, 1}), from, to), strided({2, 6}, {6, 1}));
  const TensorDesc one_channel = row_major(float32(), {2, 1, 4, 5});
  EXPECT_EQ(moved_view(strided({40}, {1}), one_channel, channels_last(float32(), {2, 1, 4, 5})),
            strided({40}, {1}));
}

TEST(Rewrite, ReshapedHasTheSameElementsInTheSameOrder) {
  std::mt19937 random(2);
  int shaped = 0;
  for (int round = 0; round < 20000; ++round) {
    const TensorDesc desc =
        random_view(random, random_layout(random, random_sizes(random, random() % 5), true));
    // The same number of elements in other dims.
    std::vector<int64_t> sizes;
    int64_t left = desc.numel();
    while (left > 1) {
      int64_t size = pick(random, 2, left);
      while (left % size != 0) --size;
      sizes.push_back(size);
      left /= size;
    }
    for (int extra = 0; extra < 2; ++extra)
      if (random() % 2) sizes.insert(sizes.begin() + random() % (sizes.size() + 1), 1);
    const auto result = reshaped(desc, sizes);
    if (!result) continue;
    ++shaped;
    ASSERT_EQ(result->sizes, sizes);
    ASSERT_EQ(places(*result), places(desc)) << "round " << round;
    ASSERT_TRUE(same_elements(*result, desc));
  }
  EXPECT_GT(shaped, 5000);
}

TEST(Rewrite, DenseTensorsReshapeToAnything) {
  EXPECT_EQ(reshaped(row_major(float32(), {4, 6}), {2, 3, 4})->strides,
            row_major(float32(), {2, 3, 4}).strides);
  EXPECT_TRUE(reshaped(row_major(float32(), {0, 6}), {3, 0}));
  EXPECT_TRUE(reshaped(row_major(float32(), {}), {1, 1}));
  EXPECT_EQ(reshaped(row_major(float32(), {4, 6}), {5, 5}), std::nullopt);
  EXPECT_EQ(reshaped(strided({4, 6}, {1, 4}), {24}), std::nullopt);
}

TEST(Rewrite, SameElementsMeansTheSamePlacesInTheSameOrder) {
  std::mt19937 random(3);
  int same = 0;
  for (int round = 0; round < 50000; ++round) {
    const TensorDesc base = row_major(float32(), random_sizes(random, 1 + random() % 3));
    const TensorDesc a = random_view(random, base);
    const TensorDesc b = random_view(random, base);
    ASSERT_EQ(same_elements(a, b), places(a) == places(b)) << "round " << round;
    same += same_elements(a, b);
  }
  EXPECT_GT(same, 1000);
  EXPECT_TRUE(same_elements(row_major(float32(), {0, 3}), row_major(float32(), {2, 0})));
}

TEST(Rewrite, AnImageHasItsChannelsTogetherAndPixelsAtOneDistance) {
  const auto pixels = [](const TensorDesc& desc) { return as_image(desc); };
  const TensorDesc dense = channels_last(float32(), {2, 6, 4, 5});
  EXPECT_EQ(pixels(dense), dense);
  EXPECT_EQ(pixels(row_major(float32(), {2, 6, 4, 5})), std::nullopt);
  EXPECT_EQ(pixels(row_major(float32(), {2, 6, 1, 1})), channels_last(float32(), {2, 6, 1, 1}));
  EXPECT_EQ(pixels(row_major(float32(), {2, 1, 4, 5})), channels_last(float32(), {2, 1, 4, 5}));
  // A slice of channels, of rows of one image, of columns.
  EXPECT_TRUE(pixels(strided({2, 3, 4, 5}, {120, 1, 30, 6}, 2)));
  EXPECT_TRUE(pixels(strided({1, 6, 2, 5}, {120, 1, 30, 6}, 30)));
  EXPECT_FALSE(pixels(strided({1, 6, 4, 3}, {120, 1, 30, 6})));
  EXPECT_FALSE(pixels(strided({1, 6, 4, 5}, {0, 1, 0, 0})));
}

TEST(Rewrite, ASoleWriterWritesAllAndFirst) {
  Graph graph;
  const auto op = [&](std::vector<Operand> operands) {
    graph.ops.emplace_back().operands = std::move(operands);
    graph.ops.back().attributes = Copy{};
  };
  const ViewId whole = add_view(graph, row_major(float32(), {8}));
  const ViewId half = add_view(graph, row_major(float32(), {4}));
  std::vector<MemoryId> m(5);
  for (MemoryId& memory : m) memory = add_memory(graph, 32);
  const MemoryId input = add_memory(graph, 32, Role::kInput);
  op({reading(input, whole), writing(m[0], whole)});
  op({reading(m[0], whole), writing(m[1], half)});   // partial
  op({reading(m[0], whole), writing(m[2], whole)});  // updated in place below
  op({reading(m[2], whole), writing(m[2], whole)});
  op({reading(m[3], whole), writing(m[4], whole)});  // nobody wrote what it reads
  op({reading(m[4], whole), writing(m[3], whole)});
  relink(graph);
  const Uses uses(graph);
  EXPECT_EQ(uses.sole_writer(m[0]), OpId(0));
  EXPECT_FALSE(uses.sole_writer(m[1]).valid());
  EXPECT_FALSE(uses.sole_writer(m[2]).valid());
  EXPECT_FALSE(uses.sole_writer(m[3]).valid());
  EXPECT_EQ(uses.sole_writer(m[4]), OpId(4));
  EXPECT_TRUE(uses.is_stable(input));
  EXPECT_FALSE(uses.is_stable(m[2]));
  EXPECT_FALSE(uses.sole_reader(m[0]).valid());
  EXPECT_EQ(uses.sole_reader(m[4]), OpId(5));
  EXPECT_FALSE(uses.is_constant(input));
}

}  // namespace
}  // namespace nimble
