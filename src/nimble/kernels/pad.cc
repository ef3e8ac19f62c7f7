#include <algorithm>
#include <array>

#include "nimble/kernels/families.h"
#include "nimble/kernels/work.h"

namespace nimble {
namespace {

constexpr size_t kMaxRank = 8;

void copy_or_gather(const float* from, int64_t from_stride, float* to, int64_t to_stride,
                    int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::copy_n(from, count, to);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

void fill(float* to, int64_t stride, int64_t count, float value) {
  if (stride == 1) {
    std::fill_n(to, count, value);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * stride] = value;
  }
}

// Line by line along the innermost loop of the output: value, input, value. A line outside of the
// input is all value. Dims that are dense in both and not padded are one with their neighbour, so
// that a line of an image with channels last is a row of it.
class PadKernel final : public Kernel {
 public:
  PadKernel(const Pad& pad, const TensorDesc& input, const TensorDesc& output) : value_(pad.value) {
    const std::vector<size_t> outer = row_dims(output);
    for (size_t dim : outer) add_loop(pad, input, output, dim, true);
    std::vector<size_t> inner;
    for (size_t dim = 0; dim < output.sizes.size(); ++dim)
      if (std::find(outer.begin(), outer.end(), dim) == outer.end()) inner.push_back(dim);
    std::stable_sort(inner.begin(), inner.end(),
                     [&](size_t a, size_t b) { return output.strides[a] > output.strides[b]; });
    for (size_t dim : inner) add_loop(pad, input, output, dim, false);
    if (count_ == row_loops_) loops_[count_++] = Loop{};  // a line of one element
    rows_ = output.numel() == 0 ? 0 : row_count(output);
  }

  std::string name() const override { return "pad"; }
  Work work() const override {
    if (rows_ == 0) return {0, 0, 0, 0};
    return {rows_, 1, 1, 0};
  }

  void run(const KernelArguments& arguments) const override {
    const float* from = static_cast<const float*>(arguments.operands[0]);
    float* to = static_cast<float*>(arguments.operands[1]);
    const Part& part = arguments.part;
    if (part.row_begin >= part.row_end) return;
    std::array<int64_t, kMaxRank> index = {};
    int64_t row = part.row_begin;
    for (size_t loop = row_loops_; loop-- > 0; row /= loops_[loop].size)
      index[loop] = row % loops_[loop].size;
    const size_t line = count_ - 1;
    int64_t lines = part.row_end - part.row_begin;
    for (size_t loop = row_loops_; loop < line; ++loop) lines *= loops_[loop].size;
    for (; lines > 0; --lines) {
      int64_t to_offset = 0;
      int64_t from_offset = 0;
      bool inside = true;
      for (size_t loop = 0; loop < line; ++loop) {
        const int64_t at = index[loop] - loops_[loop].begin;
        inside &= at >= 0 && at < loops_[loop].input_size;
        to_offset += index[loop] * loops_[loop].to_stride;
        from_offset += at * loops_[loop].from_stride;
      }
      write_line(loops_[line], inside ? from + from_offset : nullptr, to + to_offset);
      for (size_t loop = line; loop-- > 0;) {
        if (++index[loop] < loops_[loop].size) break;
        index[loop] = 0;
      }
    }
  }

 private:
  struct Loop {
    int64_t size = 1;
    int64_t input_size = 1;
    int64_t begin = 0;
    int64_t to_stride = 1;
    int64_t from_stride = 1;
  };

  void add_loop(const Pad& pad, const TensorDesc& input, const TensorDesc& output, size_t dim,
                bool counts_rows) {
    const Loop loop{output.sizes[dim], input.sizes[dim], pad.begin[dim], output.strides[dim],
                    input.strides[dim]};
    // An inner dim that is not padded joins the one around it.
    if (!counts_rows && count_ > row_loops_ && loop.begin == 0 && loop.size == loop.input_size) {
      Loop& outer = loops_[count_ - 1];
      if (outer.to_stride == loop.size * loop.to_stride &&
          outer.from_stride == loop.size * loop.from_stride) {
        outer = {outer.size * loop.size, outer.input_size * loop.size, outer.begin * loop.size,
                 loop.to_stride, loop.from_stride};
        return;
      }
    }
    loops_[count_++] = loop;
    if (counts_rows) ++row_loops_;
  }

  // `from`: where index 0 of the input is, or null for a line outside of it.
  void write_line(const Loop& line, const float* from, float* to) const {
    const int64_t first = from ? std::clamp<int64_t>(line.begin, 0, line.size) : line.size;
    const int64_t last =
        from ? std::clamp<int64_t>(line.begin + line.input_size, first, line.size) : line.size;
    fill(to, line.to_stride, first, value_);
    if (first < last)
      copy_or_gather(from + (first - line.begin) * line.from_stride, line.from_stride,
                     to + first * line.to_stride, line.to_stride, last - first);
    fill(to + last * line.to_stride, line.to_stride, line.size - last, value_);
  }

  float value_;
  std::array<Loop, kMaxRank + 1> loops_ = {};
  size_t count_ = 0;
  size_t row_loops_ = 0;
  int64_t rows_ = 0;
};

}  // namespace

std::vector<KernelPtr> pad_candidates(const Pad& pad, std::span<const TensorDesc> operands) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  if (input.dtype.name != "float32" || output.dtype.name != "float32" ||
      input.sizes.size() != output.sizes.size() || pad.begin.size() != input.sizes.size() ||
      input.sizes.size() > kMaxRank)
    return {};
  return {std::make_shared<PadKernel>(pad, input, output)};
}

}  // namespace nimble
