#include <algorithm>
#include <numeric>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"

// The pixels of grad_input fall into phases: those of one remainder of row and column by the
// stride. Each phase is a convolution of grad_output with stride 1, with some of the taps, turned
// around, and input and output channels of the weight exchanged.
namespace nimble {
namespace {

// A phase in one direction. Tap j of its convolution is tap first_tap + j * tap_step of the weight.
struct Phase {
  int64_t first = 0;  // index in grad_input
  int64_t size = 0;   // how many
  int64_t taps = 0;   // 0: nothing reaches them
  int64_t first_tap = 0;
  int64_t tap_step = 0;
  int64_t dilation = 1;
  int64_t padding = 0;  // before grad_output; negative: its first ones are not read
};

// In grad_input at `y`, with y + padding = remainder + stride * t, arrive grad_output[t - j'] of
// those taps k for which k * dilation = remainder + stride * j'.
Phase find_phase(int64_t first, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                 int64_t dilation) {
  Phase phase;
  phase.first = first;
  phase.size = (size - first + stride - 1) / stride;
  const int64_t remainder = (first + padding) % stride;
  const int64_t step = stride / std::gcd(stride, dilation);  // between taps
  int64_t tap = 0;
  while (tap < std::min(step, kernel) && tap * dilation % stride != remainder) ++tap;
  if (tap >= std::min(step, kernel)) return phase;
  phase.taps = (kernel - tap + step - 1) / step;
  phase.first_tap = tap + (phase.taps - 1) * step;
  phase.tap_step = -step;
  phase.dilation = step * dilation / stride;
  const int64_t newest = (first + padding) / stride - (tap * dilation - remainder) / stride;
  phase.padding = (phase.taps - 1) * phase.dilation - newest;
  return phase;
}

struct SubConvolution {
  Phase y, x;
  KernelPtr kernel = nullptr;  // null: its pixels are zero
  int64_t grad_output = 0;     // where its operands begin
  int64_t weight = 0;
  int64_t grad_input = 0;
};

constexpr size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class BackwardInput final : public Kernel {
 public:
  BackwardInput(const ConvolutionBackwardInput& convolution, std::span<const TensorDesc> operands,
                std::vector<SubConvolution> parts, bool regroup)
      : stride_(convolution.stride),
        groups_(convolution.groups),
        weight_(operands[1]),
        grad_input_(operands[2]),
        parts_(std::move(parts)),
        regroup_(regroup) {
    const std::vector<int64_t>& sizes = operands[2].sizes;
    work_ = {sizes[0] * sizes[2], 1, sizes[1], 1};
    for (const SubConvolution& part : parts_) {
      if (part.kernel == nullptr) continue;
      const Work inner = part.kernel->work();
      const int64_t grain = inner.row_grain == 0 ? inner.rows : inner.row_grain;
      const int64_t images = (grain + part.y.size - 1) / part.y.size;
      if (stride_[0] == 1)
        work_.row_grain = std::lcm(work_.row_grain, grain);
      else if (grain != 1)
        work_.row_grain = std::max(work_.row_grain, images * sizes[2]);
      work_.column_grain = std::lcm(work_.column_grain, std::max<int64_t>(inner.column_grain, 1));
    }
    if (work_.row_grain >= work_.rows) work_.row_grain = 0;
    if (work_.column_grain >= work_.columns) work_.column_grain = 0;
  }

  std::string name() const override {
    std::string text = "backward";
    const SubConvolution* last = nullptr;
    for (const SubConvolution& part : parts_) {
      if (part.kernel == nullptr) continue;
      if (last == nullptr || last->kernel->name() != part.kernel->name())
        text.append(" ").append(part.kernel->name());
      last = &part;
    }
    return text;
  }

  Work work() const override { return work_; }

  size_t scratch_bytes(const Part& part) const override {
    size_t bytes = 0;
    for (const SubConvolution& sub : parts_) {
      const Part rows = rows_of(sub, part);
      if (sub.kernel != nullptr && rows.row_begin < rows.row_end)
        bytes = std::max(bytes, sub.kernel->scratch_bytes(rows));
    }
    return regrouped_bytes() + bytes;
  }

  void run(const KernelArguments& arguments) const override {
    const auto* weight = static_cast<const float*>(arguments.operands[1]);
    if (regroup_) {
      auto* to = reinterpret_cast<float*>(arguments.scratch);
      regroup(weight, to);
      weight = to;
    }
    for (const SubConvolution& sub : parts_) {
      const Part rows = rows_of(sub, arguments.part);
      if (rows.row_begin >= rows.row_end) continue;
      auto* to = static_cast<float*>(arguments.operands[2]) + sub.grad_input;
      if (sub.kernel == nullptr) {
        clear(sub, rows, to);
        continue;
      }
      const auto* from = static_cast<const float*>(arguments.operands[0]) + sub.grad_output;
      void* const operands[] = {const_cast<float*>(from), const_cast<float*>(weight + sub.weight),
                                to};
      KernelArguments inner = arguments;
      inner.operands = operands;
      inner.scratch = arguments.scratch + regrouped_bytes();
      inner.part = rows;
      inner.next = {};
      sub.kernel->run(inner);
    }
  }

 private:
  // The same part, in rows of the phase.
  Part rows_of(const SubConvolution& sub, Part part) const {
    const int64_t height = grad_input_.height();
    const auto before = [&](int64_t row) {
      const int64_t y = row % height;
      const int64_t in_image =
          y <= sub.y.first ? 0 : (y - sub.y.first + stride_[0] - 1) / stride_[0];
      return row / height * sub.y.size + in_image;
    };
    part.row_begin = before(part.row_begin);
    part.row_end = before(part.row_end);
    return part;
  }

  void clear(const SubConvolution& sub, const Part& part, float* to) const {
    const int64_t pixel = grad_input_.pixel() * stride_[1];
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      float* pixels = to + grad_input_.offset(row / sub.y.size, row % sub.y.size * stride_[0]);
      for (int64_t x = 0; x < sub.x.size; ++x)
        std::fill(pixels + x * pixel + part.column_begin, pixels + x * pixel + part.column_end,
                  0.0F);
    }
  }

  // [O, I/groups, h, w] to [I, O/groups, h, w]: strides alone cannot exchange channels of groups.
  void regroup(const float* weight, float* to) const {
    const auto& size = weight_.sizes;
    const auto& s = weight_.strides;
    const int64_t outputs = size[0] / groups_;
    for (int64_t group = 0; group < groups_; ++group)
      for (int64_t i = 0; i < size[1]; ++i)
        for (int64_t o = group * outputs; o < (group + 1) * outputs; ++o)
          for (int64_t y = 0; y < size[2]; ++y)
            for (int64_t x = 0; x < size[3]; ++x)
              *to++ = weight[o * s[0] + i * s[1] + y * s[2] + x * s[3]];
  }
  size_t regrouped_bytes() const {
    return regroup_ ? aligned(static_cast<size_t>(weight_.numel()) * sizeof(float)) : 0;
  }

  std::array<int64_t, 2> stride_;
  int64_t groups_;
  TensorDesc weight_;
  ImageRows grad_input_;
  std::vector<SubConvolution> parts_;
  bool regroup_;
  Work work_;
};

// Weights as [I, O/groups, h, w].
TensorDesc exchanged_weight(const TensorDesc& weight, int64_t groups, bool regroup) {
  TensorDesc exchanged = weight;
  exchanged.sizes[0] = weight.sizes[1] * groups;
  exchanged.sizes[1] = weight.sizes[0] / groups;
  if (regroup) {
    const auto& size = exchanged.sizes;
    exchanged.strides = {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
  } else if (groups == 1) {
    std::swap(exchanged.strides[0], exchanged.strides[1]);
  }
  return exchanged;
}

// From index `begin` of a dim on, every `step`-th, `size` of them. Returns where they begin.
int64_t take(TensorDesc& desc, size_t dim, int64_t begin, int64_t step, int64_t size) {
  const int64_t offset = begin * desc.strides[dim];
  desc.strides[dim] *= step;
  desc.sizes[dim] = size;
  return offset;
}

}  // namespace

std::vector<KernelPtr> convolution_backward_input_candidates(
    const ConvolutionBackwardInput& backward, std::span<const TensorDesc> operands) {
  const auto& [stride, padding, dilation, groups, allow_winograd] = backward;
  const auto& kernel = operands[1].sizes;
  const auto& sizes = operands[2].sizes;
  const bool depthwise = kernel[1] == 1 && kernel[0] == groups;
  const bool regroup = groups > 1 && !depthwise;
  const TensorDesc weight = exchanged_weight(operands[1], groups, regroup);

  std::vector<SubConvolution> parts;
  std::vector<std::vector<KernelPtr>> kernels;  // by part
  size_t most = 0;
  for (int64_t y = 0; y < std::min(stride[0], sizes[2]); ++y)
    for (int64_t x = 0; x < std::min(stride[1], sizes[3]); ++x) {
      SubConvolution part{
          .y = find_phase(y, sizes[2], kernel[2], stride[0], padding[0], dilation[0]),
          .x = find_phase(x, sizes[3], kernel[3], stride[1], padding[1], dilation[1])};
      TensorDesc from = operands[0];
      TensorDesc taps = weight;
      TensorDesc to = operands[2];
      Convolution convolution{.stride = {1, 1},
                              .groups = groups,
                              .allow_winograd = allow_winograd && stride[0] * stride[1] == 1,
                              .constant_weight = false};
      for (size_t d : {0, 1}) {
        const Phase& phase = d == 0 ? part.y : part.x;
        const int64_t unread = std::max<int64_t>(-phase.padding, 0);
        convolution.padding[d] = std::max<int64_t>(phase.padding, 0);
        convolution.dilation[d] = phase.dilation;
        part.grad_output +=
            take(from, d + 2, unread, 1, std::max<int64_t>(from.sizes[d + 2] - unread, 0));
        part.weight += take(taps, d + 2, phase.first_tap, phase.tap_step, phase.taps);
        part.grad_input += take(to, d + 2, phase.first, stride[d], phase.size);
      }
      kernels.emplace_back();
      if (from.numel() > 0 && taps.numel() > 0) {
        const std::array<TensorDesc, 3> inner = {from, taps, to};
        kernels.back() = convolution_candidates(convolution, inner);
        if (kernels.back().empty()) return {};
      }
      most = std::max(most, kernels.back().size());
      parts.push_back(part);
    }
  if (most == 0 && !ImageRows(operands[2]).channels_last()) return {};

  std::vector<KernelPtr> list;
  for (size_t i = 0; i < std::max<size_t>(most, 1); ++i) {
    for (size_t p = 0; p < parts.size(); ++p)
      if (!kernels[p].empty()) parts[p].kernel = kernels[p][std::min(i, kernels[p].size() - 1)];
    list.push_back(std::make_shared<BackwardInput>(backward, operands, parts, regroup));
  }
  return list;
}

}  // namespace nimble
