#include <algorithm>
#include <cstring>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/gemm_tile.h"
#include "nimble/kernels/panels.h"
#include "nimble/kernels/ranked_kernel.h"

namespace nimble {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;  // of `a`, while it meets all of b
// Of `a` in one stretch of k, while it meets that stretch of all of b: so that b, if constant, is
// read from far away only once.
constexpr int64_t kStretchBytes = 512 << 10;
constexpr int64_t kShortestStretch = 512;

// One operand as matrices, one per index of the output's dims in front of the last two.
class Matrices {
 public:
  Matrices() = default;
  Matrices(const TensorDesc& desc, const TensorDesc& output) {
    const size_t rank = output.sizes.size();
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (output.sizes[d] == 1) continue;
      sizes_.push_back(output.sizes[d]);
      strides_.push_back(desc.sizes[d] == 1 ? 0 : desc.strides[d]);
    }
    rows_ = desc.sizes[rank - 2];
    row_ = rows_ == 1 && output.sizes[rank - 2] == 1 ? 0 : desc.strides[rank - 2];
    if (rows_ == 1 && output.sizes[rank - 2] == 1 && !strides_.empty()) row_ = strides_.back();
    column_ = desc.sizes[rank - 1] == 1 ? 1 : desc.strides[rank - 1];
  }

  int64_t row() const { return row_; }
  int64_t column() const { return column_; }
  int64_t offset(int64_t index) const {
    int64_t offset = 0;
    for (size_t d = sizes_.size(); d-- > 0; index /= sizes_[d])
      offset += index % sizes_[d] * strides_[d];
    return offset;
  }
  // The same matrix everywhere.
  bool broadcasts() const {
    return std::all_of(strides_.begin(), strides_.end(), [](int64_t s) { return s == 0; });
  }
  // Whether the rows of the next matrix continue those of this one.
  bool follow() const {
    int64_t expected = row_ * rows_;
    for (size_t d = sizes_.size(); d-- > 0; expected *= sizes_[d])
      if (strides_[d] != expected) return false;
    return true;
  }

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  int64_t rows_ = 0;
  int64_t row_ = 0;
  int64_t column_ = 1;
};

// Panels of b are packed ahead of time if b is constant, else panel by panel as they are needed:
//
//   for each matrix, or all of them as one if they have b in common and their rows follow
//     for each block of rows of a (b constant) or all (b not constant)
//       for each stretch of k (b constant) or all of it (b not constant)
//         for each panel of b
//           pack it, if it is not constant
//           tiles
class MatMulKernel final : public Kernel {
 public:
  MatMulKernel(const MatMul& matmul, std::span<const TensorDesc> operands, const GemmTiles& tiles,
               int64_t most_vectors)
      : matmul_(matmul),
        tiles_(tiles),
        output_index_(operands.size() - 1),
        a_(operands[0], operands.back()),
        b_(operands[1], operands.back()),
        output_(operands.back(), operands.back()),
        epilogue_(matmul.epilogue) {
    const TensorDesc& output = operands.back();
    const size_t rank = output.sizes.size();
    rows_ = output.sizes[rank - 2];
    depth_ = operands[0].sizes[rank - 1];
    for (size_t d = 0; d + 2 < rank; ++d) batch_ *= output.sizes[d];
    panels_ = Panels::cut(output.sizes[rank - 1], depth_, tiles.lanes, most_vectors);
    size_t index = 2;
    if (matmul.bias) bias_ = Matrices(operands[bias_index_ = index++], output);
    if (matmul.epilogue.add) addend_ = Matrices(operands[addend_index_ = index++], output);
    plan_bias();
    const bool packs = matmul.constant_b && output.numel() > 0;
    packed_matrices_ = !packs ? 0 : b_.broadcasts() ? 1 : batch_;

    copy_a_ = a_.column() != 1;
    const auto mergeable = [&](const Matrices& matrices) { return matrices.follow(); };
    if (b_.broadcasts() && !copy_a_ && mergeable(a_) && mergeable(output_) &&
        (addend_index_ == 0 || mergeable(addend_)) &&
        (bias_index_ == 0 || matmul.constant_b || bias_.broadcasts()) && !finish_later_) {
      rows_ *= batch_;
      batch_ = 1;
    }
    plan_stretches();
    const int64_t most = std::max<int64_t>(kBlockBytes / std::max<int64_t>(stretch_ * 4, 1), 1);
    const int64_t blocks = std::max<int64_t>((rows_ + most - 1) / most, 1);
    block_rows_ = std::max<int64_t>((rows_ + blocks - 1) / blocks, 1);
    single_ = batch_ * rows_ == 1 && !copy_a_;
  }

  std::string name() const override {
    return message(single_ ? "matmul.vector " : "matmul.tiles ",
                   single_ ? 1 : tiles_.max_rows[panels_.vectors], "x", panels_.width(),
                   matmul_.constant_b ? "" : " pack", copy_a_ ? " copy" : "");
  }

  Work work() const override {
    if (batch_ * rows_ * panels_.columns == 0) return {0, 1, 0, 0};
    // A part packs the panels of b that it needs: not for a few rows each.
    const int64_t grain = matmul_.constant_b ? 1 : batch_ > 1 ? rows_ : 16;
    return {batch_ * rows_, grain, panels_.columns, panels_.width()};
  }

  size_t packed_bytes() const override {
    return static_cast<size_t>(packed_matrices_ * panels_.packed_size()) * sizeof(float);
  }

  size_t scratch_bytes(const Part&) const override {
    size_t floats = 0;
    if (!matmul_.constant_b) floats += panel_floats();
    if (copy_a_) floats += static_cast<size_t>(block_rows_ * depth_);
    return floats * sizeof(float);
  }

  void pack(void* const* operands, std::byte* packed) const override {
    const float* bias =
        bias_index_ != 0 ? static_cast<const float*>(operands[bias_index_]) : nullptr;
    float* to = reinterpret_cast<float*>(packed);
    for (int64_t i = 0; i < packed_matrices_; ++i, to += panels_.packed_size()) {
      const float* b = static_cast<const float*>(operands[1]) + b_.offset(i);
      for (int64_t panel = 0; panel < panels_.count(); ++panel) {
        pack_bias(bias, panel, to + panels_.bias_offset(panel));
        pack_panel(b, panel, to + panels_.offset(panel));
      }
    }
  }

  PackedRange packed_range(const Part& part) const override {
    if (packed_matrices_ != 1) return {0, packed_bytes()};
    return panels_.range(part.column_begin, part.column_end);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    FetchCursor next(arguments.next);
    for (int64_t row = part.row_begin; row < part.row_end;) {
      const int64_t matrix = row / rows_;
      int64_t end = std::min(part.row_end, (matrix + 1) * rows_);
      if (matmul_.constant_b || copy_a_) end = std::min(end, row + block_rows_);
      run_block(arguments, matrix, row - matrix * rows_, end - matrix * rows_, next);
      row = end;
    }
  }

 private:
  size_t panel_floats() const { return static_cast<size_t>(panels_.width() * (depth_ + 1)); }

  void plan_stretches() {
    stretch_ = std::max<int64_t>(depth_, 1);
    if (!matmul_.constant_b || batch_ * rows_ == 1) return;
    const int64_t most =
        std::max(kStretchBytes / 4 / std::max<int64_t>(rows_, 1), kShortestStretch);
    const int64_t count = (stretch_ + most - 1) / most;
    stretch_ = (stretch_ + count - 1) / count;
  }

  // A bias of one row is where sums begin. Any other one is added behind: as the addend if that is
  // all, else row by row.
  void plan_bias() {
    if (addend_index_ != 0 && addend_.column() != 1) finish_later_ = true;
    const bool one_row =
        bias_index_ == 0 || (bias_.broadcasts() && (bias_.row() == 0 || rows_ == 1));
    if (!one_row) {
      bias_rows_ = true;
      Epilogue& e = epilogue_;
      const bool one =
          e.first.kind == ActivationKind::kNone || e.last.kind == ActivationKind::kNone;
      if (!e.add && one && bias_.column() == 1) {
        if (e.last.kind == ActivationKind::kNone) std::swap(e.first, e.last);
        e.add = true;
        addend_index_ = bias_index_;
        addend_ = bias_;
        bias_index_ = 0;
      } else {
        finish_later_ = true;
      }
    }
    if (finish_later_) epilogue_ = {};
  }

  void pack_bias(const float* bias, int64_t panel, float* to) const {
    const int64_t columns = panels_.columns_of(panel);
    std::fill(to, to + panels_.stride_of(panel), 0.0F);
    if (bias == nullptr || bias_rows_) return;
    bias += panels_.begin(panel) * bias_.column();
    for (int64_t c = 0; c < columns; ++c) to[c] = bias[c * bias_.column()];
  }

  void pack_panel(const float* b, int64_t panel, float* to) const {
    const int64_t columns = panels_.columns_of(panel);
    const int64_t stride = panels_.stride_of(panel);
    b += panels_.begin(panel) * b_.column();
    if (columns < stride)
      for (int64_t k = 0; k < depth_; ++k)
        std::fill(to + k * stride + columns, to + (k + 1) * stride, 0.0F);
    if (b_.column() == 1) {
      for (int64_t k = 0; k < depth_; ++k) {
        const float* from = b + k * b_.row();
        float* row = to + k * stride;
        if (matmul_.alpha == 1)
          std::memcpy(row, from, static_cast<size_t>(columns) * sizeof(float));
        else
          for (int64_t c = 0; c < columns; ++c) row[c] = matmul_.alpha * from[c];
      }
    } else if (b_.row() == 1) {
      tiles_.transpose(b, b_.column(), columns, depth_, matmul_.alpha, to, stride);
    } else {
      for (int64_t k = 0; k < depth_; ++k)
        for (int64_t c = 0; c < columns; ++c)
          to[k * stride + c] = matmul_.alpha * b[k * b_.row() + c * b_.column()];
    }
  }

  void run_block(const KernelArguments& arguments, int64_t matrix, int64_t begin, int64_t end,
                 FetchCursor& next) const {
    float* scratch = reinterpret_cast<float*>(arguments.scratch);
    const auto floats = [&](size_t i) { return static_cast<const float*>(arguments.operands[i]); };
    const float* packed = reinterpret_cast<const float*>(arguments.packed) +
                          (packed_matrices_ > 1 ? matrix * panels_.packed_size() : 0);

    static constexpr int64_t kNoOffset = 0;
    GemmTile tile{.a = floats(0) + a_.offset(matrix) + begin * a_.row(),
                  .a_row = a_.row(),
                  .runs = &kNoOffset,
                  .run_count = 1,
                  .c_row = output_.row()};
    if (copy_a_) {
      float* copied = scratch + (!matmul_.constant_b ? panel_floats() : 0);
      copy_rows(tile.a, end - begin, copied);
      tile.a = copied;
      tile.a_row = depth_;
    }
    float* c = static_cast<float*>(arguments.operands[output_index_]) + output_.offset(matrix) +
               begin * output_.row();
    const float* addend = nullptr;
    if (addend_index_ != 0 && !finish_later_) {
      addend = floats(addend_index_) + addend_.offset(matrix) + begin * addend_.row();
      tile.addend_row = addend_.row();
    }
    const float* a = tile.a;
    for (int64_t k = 0; k == 0 || k < depth_; k += stretch_) {
      tile.a = a + k;
      tile.run_length = std::min(stretch_, depth_ - k);
      run_stretch(arguments, matrix, k, end - begin, packed, c, addend, tile, next);
    }
    if (finish_later_) finish(arguments, matrix, begin, end);
  }

  void run_stretch(const KernelArguments& arguments, int64_t matrix, int64_t k, int64_t rows,
                   const float* packed, float* c, const float* addend, GemmTile& tile,
                   FetchCursor& next) const {
    static const Epilogue kNothing;
    const Part& part = arguments.part;
    const auto floats = [&](size_t i) { return static_cast<const float*>(arguments.operands[i]); };
    float* panel_scratch = reinterpret_cast<float*>(arguments.scratch);
    const PackedRange own = packed_range(part);
    // Few weights have been fetched by the task before.
    const bool fetched = !next.done() && own.end - own.begin <= kMostFetchedAhead;
    const bool last_stretch = k + stretch_ >= depth_;
    tile.goes_on = k > 0;
    tile.epilogue = last_stretch ? &epilogue_ : &kNothing;
    if (!last_stretch) addend = nullptr;
    const int64_t first = part.column_begin / panels_.width();
    for (int64_t panel = first; panels_.begin(panel) < part.column_end; ++panel) {
      if (matmul_.constant_b) {
        tile.b = packed + panels_.offset(panel) + k * panels_.stride_of(panel);
        tile.bias = packed + panels_.bias_offset(panel);
      } else {
        pack_bias(bias_index_ != 0 ? floats(bias_index_) : nullptr, panel, panel_scratch);
        pack_panel(floats(1) + b_.offset(matrix), panel, panel_scratch + panels_.width());
        tile.bias = panel_scratch;
        tile.b = panel_scratch + panels_.width();
      }
      tile.c = c + panels_.begin(panel);
      tile.addend = addend != nullptr ? addend + panels_.begin(panel) : nullptr;
      tile.columns = panels_.columns_of(panel);
      const bool last_panel = panels_.begin(panel + 1) >= part.column_end;
      const bool within = matmul_.constant_b && !(last_panel && last_stretch) && !fetched;
      if (within) {
        const int64_t then = last_panel ? first : panel + 1;
        const int64_t from = last_panel ? k + stretch_ : k;
        const int64_t depth = std::min(stretch_, depth_ - from);
        tile.ahead = packed + panels_.offset(then) + from * panels_.stride_of(then);
        tile.ahead_end = tile.ahead + depth * panels_.stride_of(then);
      } else {
        next.give_to(tile);
      }
      const int vectors = static_cast<int>(panels_.vectors_of(panel));
      if (single_)
        tiles_.vectors[vectors](tile);
      else
        tiles_.run(tile, vectors, rows);
      if (!within) next.take_from(tile);
    }
  }

  void copy_rows(const float* a, int64_t rows, float* to) const {
    if (a_.row() == 1) {
      tiles_.transpose(a, a_.column(), depth_, rows, 1, to, depth_);
      return;
    }
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < depth_; ++k) to[m * depth_ + k] = a[m * a_.row() + k * a_.column()];
  }

  // The epilogue of finished sums, with a bias and an addend of any strides.
  void finish(const KernelArguments& arguments, int64_t matrix, int64_t begin, int64_t end) const {
    const Part& part = arguments.part;
    const int64_t count = part.column_end - part.column_begin;
    const auto add = [&](size_t index, const Matrices& matrices, int64_t row, float* to) {
      if (index == 0) return;
      const float* from = static_cast<const float*>(arguments.operands[index]) +
                          matrices.offset(matrix) + row * matrices.row() +
                          part.column_begin * matrices.column();
      for (int64_t i = 0; i < count; ++i) to[i] += from[i * matrices.column()];
    };
    for (int64_t row = begin; row < end; ++row) {
      float* to = static_cast<float*>(arguments.operands[output_index_]) + output_.offset(matrix) +
                  row * output_.row() + part.column_begin;
      if (bias_rows_) add(bias_index_, bias_, row, to);
      tiles_.activate(matmul_.epilogue.first, to, count);
      add(addend_index_, addend_, row, to);
      tiles_.activate(matmul_.epilogue.last, to, count);
    }
  }

  MatMul matmul_;
  const GemmTiles& tiles_;
  size_t output_index_;
  size_t bias_index_ = 0;  // 0: none
  size_t addend_index_ = 0;
  Matrices a_, b_, bias_, addend_, output_;
  Epilogue epilogue_;  // what tiles do
  int64_t batch_ = 1;
  int64_t rows_ = 0;
  int64_t depth_ = 0;
  Panels panels_;
  int64_t packed_matrices_ = 0;
  int64_t block_rows_ = 1;
  int64_t stretch_ = 1;        // of k
  bool bias_rows_ = false;     // the bias has more than one row
  bool finish_later_ = false;  // the epilogue is not the tiles'
  bool copy_a_ = false;
  bool single_ = false;
};

}  // namespace

std::vector<KernelPtr> matmul_candidates(const MatMul& matmul,
                                         std::span<const TensorDesc> operands) {
  const TensorDesc& output = operands.back();
  const size_t rank = output.sizes.size();
  const int64_t columns = output.sizes[rank - 1];
  if (columns != 1 && output.strides[rank - 1] != 1) return {};
  const GemmTiles& tiles = gemm_tiles();
  const int64_t depth = operands[0].sizes[rank - 1];
  const int64_t rows = columns == 0 ? 0 : output.numel() / columns;
  std::vector<RankedKernel> ranked;
  for (int64_t most = 1; most <= tiles.max_vectors; ++most) {
    const Panels panels = Panels::cut(columns, depth, tiles.lanes, most);
    if (panels.vectors != most) continue;
    ranked.push_back({panels.estimate(tiles, 1, rows),
                      std::make_shared<MatMulKernel>(matmul, operands, tiles, most)});
  }
  return take_best(std::move(ranked), 3);
}

}  // namespace nimble
