#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

struct IndexDim {
  int64_t size;
  int64_t index_stride;
  int64_t output_stride;
};

// Copies of rows: nothing for vectors of ours to do better than memcpy.
template <class Index>
class EmbeddingRows final : public Kernel {
 public:
  EmbeddingRows(std::vector<IndexDim> dims, const TensorDesc& weight, const TensorDesc& output)
      : dims_(std::move(dims)),
        table_rows_(weight.sizes[0]),
        size_(weight.sizes[1]),
        weight_row_(weight.strides[0]),
        weight_step_(size_ == 1 ? 1 : weight.strides[1]),
        output_step_(size_ == 1 ? 1 : output.strides.back()),
        empty_(output.numel() == 0) {}

  std::string name() const override { return "embedding.rows"; }
  Work work() const override {
    if (empty_) return {.rows = 0, .columns = 0};
    int64_t rows = 1;
    for (const IndexDim& dim : dims_) rows *= dim.size;
    return {.rows = rows, .row_grain = 1};
  }

  void run(const KernelArguments& arguments) const override {
    const Index* indices = static_cast<const Index*>(arguments.operands[0]);
    const float* weight = static_cast<const float*>(arguments.operands[1]);
    float* output = static_cast<float*>(arguments.operands[2]);
    for (int64_t row = arguments.part.row_begin; row < arguments.part.row_end; ++row) {
      int64_t index_at = 0;
      int64_t output_at = 0;
      int64_t rest = row;
      for (size_t d = dims_.size(); d-- > 0; rest /= dims_[d].size) {
        index_at += rest % dims_[d].size * dims_[d].index_stride;
        output_at += rest % dims_[d].size * dims_[d].output_stride;
      }
      const auto index = static_cast<int64_t>(indices[index_at]);
      if (index < 0 || index >= table_rows_) [[unlikely]]
        throw std::out_of_range(message("index out of range in self: got ", index,
                                        ", the table has ", table_rows_, " rows"));
      copy(weight + index * weight_row_, output + output_at);
    }
  }

 private:
  void copy(const float* from, float* to) const {
    if (weight_step_ == 1 && output_step_ == 1) {
      std::memcpy(to, from, static_cast<size_t>(size_) * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < size_; ++i) to[i * output_step_] = from[i * weight_step_];
  }

  std::vector<IndexDim> dims_;
  int64_t table_rows_;
  int64_t size_;
  int64_t weight_row_;
  int64_t weight_step_;
  int64_t output_step_;
  bool empty_;
};

}  // namespace

std::vector<KernelPtr> embedding_candidates(const Embedding&,
                                            std::span<const TensorDesc> operands) {
  const TensorDesc& indices = operands[0];
  const TensorDesc& weight = operands[1];
  const TensorDesc& output = operands[2];
  if (weight.dtype.name != "float32" || output.dtype.name != "float32") return {};
  std::vector<IndexDim> dims;
  for (size_t d = 0; d < indices.sizes.size(); ++d)
    if (indices.sizes[d] != 1)
      dims.push_back({indices.sizes[d], indices.strides[d], output.strides[d]});
  std::stable_sort(dims.begin(), dims.end(), [](const IndexDim& a, const IndexDim& b) {
    return a.output_stride > b.output_stride;
  });
  if (indices.dtype.name == "int64")
    return {std::make_shared<EmbeddingRows<int64_t>>(dims, weight, output)};
  if (indices.dtype.name == "int32")
    return {std::make_shared<EmbeddingRows<int32_t>>(dims, weight, output)};
  return {};
}

}  // namespace nimble
