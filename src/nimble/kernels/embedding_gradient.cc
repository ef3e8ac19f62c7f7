#include <algorithm>
#include <stdexcept>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

// Rows that were looked up several times are summed up in the order of their indices.
template <class Index>
class EmbeddingGradientRows final : public Kernel {
 public:
  EmbeddingGradientRows(const EmbeddingGradient& attributes, std::span<const TensorDesc> operands)
      : padding_(attributes.padding_index), gradient_(operands[0]), indices_(operands[1]) {
    rows_ = operands[2].sizes[0];
    size_ = operands[2].sizes[1];
    row_stride_ = operands[2].strides[0];
  }

  std::string name() const override { return "embedding_gradient.rows"; }
  Work work() const override {
    if (rows_ * size_ == 0) return {0, 0, 0, 0};
    return {rows_, 1, 1, 0};
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    const float* gradient = static_cast<const float*>(arguments.operands[0]);
    const Index* indices = static_cast<const Index*>(arguments.operands[1]);
    float* output = static_cast<float*>(arguments.operands[2]);
    if (row_stride_ == size_)
      std::fill_n(output + part.row_begin * size_, (part.row_end - part.row_begin) * size_, 0.0f);
    else
      for (int64_t row = part.row_begin; row < part.row_end; ++row)
        std::fill_n(output + row * row_stride_, size_, 0.0f);
    const int64_t count = indices_.numel();
    const size_t rank = indices_.sizes.size();
    for (int64_t i = 0; i < count; ++i) {
      int64_t index_at = 0;
      int64_t gradient_at = 0;
      int64_t rest = i;
      for (size_t d = rank; d-- > 0; rest /= indices_.sizes[d]) {
        index_at += rest % indices_.sizes[d] * indices_.strides[d];
        gradient_at += rest % indices_.sizes[d] * gradient_.strides[d];
      }
      const auto index = static_cast<int64_t>(indices[index_at]);
      if (index < 0 || index >= rows_) [[unlikely]]
        throw std::out_of_range(
            message("index out of range: got ", index, ", the table has ", rows_, " rows"));
      if (index == padding_ || index < part.row_begin || index >= part.row_end) continue;
      const float* from = gradient + gradient_at;
      float* to = output + index * row_stride_;
      for (int64_t k = 0; k < size_; ++k) to[k] += from[k];
    }
  }

 private:
  int64_t padding_;
  TensorDesc gradient_;
  TensorDesc indices_;
  int64_t rows_;
  int64_t size_;
  int64_t row_stride_;
};

}  // namespace

std::vector<KernelPtr> embedding_gradient_candidates(const EmbeddingGradient& attributes,
                                                     std::span<const TensorDesc> operands) {
  const TensorDesc& gradient = operands[0];
  const TensorDesc& output = operands[2];
  if (gradient.dtype.name != "float32" || output.dtype.name != "float32") return {};
  if (output.sizes[1] > 1 && (gradient.strides.back() != 1 || output.strides[1] != 1)) return {};
  if (output.sizes[0] > 1 && output.strides[0] < output.sizes[1]) return {};
  if (operands[1].dtype.name == "int64")
    return {std::make_shared<EmbeddingGradientRows<int64_t>>(attributes, operands)};
  if (operands[1].dtype.name == "int32")
    return {std::make_shared<EmbeddingGradientRows<int32_t>>(attributes, operands)};
  return {};
}

}  // namespace nimble
