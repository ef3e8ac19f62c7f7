#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::dense;

// Of an index of the output, in a tensor that may broadcast.
int64_t offset_of(const TensorDesc& desc, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d)
    if (desc.sizes[d] != 1) offset += index[d] * desc.strides[d];
  return offset;
}

// The last two dims exchanged, as a view.
TensorDesc transposed(TensorDesc desc) {
  const size_t rank = desc.sizes.size();
  std::swap(desc.sizes[rank - 1], desc.sizes[rank - 2]);
  std::swap(desc.strides[rank - 1], desc.strides[rank - 2]);
  return desc;
}

// As if it had these sizes: stride 0 where it has one index.
TensorDesc expanded(TensorDesc desc, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (desc.sizes[d] == 1 && sizes[d] != 1) desc.strides[d] = 0;
  desc.sizes = sizes;
  return desc;
}

TensorDesc with_row_stride(TensorDesc desc, int64_t stride) {
  for (size_t d = desc.sizes.size() - 1; d-- > 0; stride *= desc.sizes[d]) desc.strides[d] = stride;
  return desc;
}

Epilogue finish(Activation first, bool add = false, Activation last = {}) {
  return Epilogue{first, add, last};
}

struct Options {
  bool constant_b = true;
  float alpha = 1;
  bool bias = true;
  Epilogue epilogue;
};

KernelCase make_case(const Options& options, TensorDesc a, TensorDesc b, TensorDesc output) {
  KernelCase result{MatMul{options.constant_b, options.alpha, options.bias, options.epilogue},
                    {std::move(a), std::move(b)}};
  if (options.bias) {
    std::vector<int64_t> sizes(output.sizes.size(), 1);
    sizes.back() = output.sizes.back();
    result.operands.push_back(expanded(dense(sizes), output.sizes));
  }
  if (options.epilogue.add) result.operands.push_back(dense(output.sizes));
  result.operands.push_back(std::move(output));
  return result;
}

KernelCase plain(int64_t m, int64_t k, int64_t n, const Options& options = {}) {
  return make_case(options, dense({m, k}), transposed(dense({n, k})), dense({m, n}));
}

}  // namespace

void matmul_reference(const MatMul& matmul, std::span<const TensorDesc> operands,
                      void* const* data) {
  const TensorDesc& output = operands.back();
  const auto floats = [&](size_t i) { return static_cast<const float*>(data[i]); };
  float* result = static_cast<float*>(data[operands.size() - 1]);
  if (output.numel() == 0) return;
  const size_t rank = output.sizes.size();
  const size_t addend = matmul.bias ? 3 : 2;
  const int64_t depth = operands[0].sizes[rank - 1];
  std::vector<int64_t> index(rank);
  while (true) {
    std::vector<int64_t> a = index;
    std::vector<int64_t> b = index;
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      a[rank - 1] = k;
      b[rank - 2] = k;
      sum += static_cast<double>(floats(0)[offset_of(operands[0], a)]) *
             floats(1)[offset_of(operands[1], b)];
    }
    sum *= matmul.alpha;
    if (matmul.bias) sum += floats(2)[offset_of(operands[2], index)];
    const float more = matmul.epilogue.add ? floats(addend)[offset_of(operands[addend], index)] : 0;
    result[offset_of(output, index)] =
        reference_epilogue(matmul.epilogue, static_cast<float>(sum), more);
    size_t d = rank;
    while (d > 0 && ++index[d - 1] == output.sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

std::vector<KernelCase> matmul_test_cases() {
  std::vector<KernelCase> list;
  const Activation relu{ActivationKind::kRelu};
  const Activation gelu{ActivationKind::kGeluErf};
  for (int64_t m : {1, 2, 5, 17, 33})
    for (int64_t k : {1, 3, 40})
      for (int64_t n : {1, 7, 16, 50, 130}) list.push_back(plain(m, k, n));
  // Deep enough for several stretches of k.
  list.push_back(plain(260, 1030, 20, {true, 1.0F, true, finish(gelu, true, relu)}));
  list.push_back(plain(300, 700, 17, {true, 1.0F, false, {}}));
  list.push_back(plain(3, 0, 20));
  list.push_back(plain(0, 5, 20));
  list.push_back(plain(3, 5, 0));
  list.push_back(plain(1, 0, 20, {.constant_b = false, .alpha = 1, .bias = false, .epilogue = {}}));
  for (const bool constant : {true, false})
    for (const float alpha : {1.0F, 0.125F})
      for (const bool bias : {true, false}) {
        const auto options = [&](Epilogue epilogue) {
          return Options{constant, alpha, bias, epilogue};
        };
        list.push_back(plain(1, 67, 75, options(finish(relu))));
        list.push_back(plain(19, 33, 45, options(finish(gelu, true, relu))));
        // b not transposed, with a gap; a and the output with gaps.
        list.push_back(
            make_case(options(finish({}, true, gelu)), with_row_stride(dense({9, 21}), 25),
                      with_row_stride(dense({21, 37}), 40), with_row_stride(dense({9, 37}), 51)));
        // a transposed; b with strides of its own.
        TensorDesc spread = dense({21, 37});
        spread.strides = {80, 2};
        list.push_back(make_case(options({}), transposed(dense({21, 9})), spread, dense({9, 37})));
        // Batches: all different, b in common, a in common, two dims of which each has one.
        list.push_back(make_case(options(finish(relu)), dense({3, 7, 20}), dense({3, 20, 18}),
                                 dense({3, 7, 18})));
        list.push_back(make_case(options(finish(relu, true)), dense({3, 7, 20}), dense({1, 20, 18}),
                                 dense({3, 7, 18})));
        list.push_back(make_case(options({}), dense({3, 1, 20}),
                                 expanded(transposed(dense({1, 18, 20})), {3, 20, 18}),
                                 dense({3, 1, 18})));
        list.push_back(
            make_case(options({}), dense({1, 7, 20}), dense({4, 20, 18}), dense({4, 7, 18})));
        list.push_back(make_case(options({}), dense({2, 1, 5, 20}),
                                 transposed(dense({1, 3, 18, 20})), dense({2, 3, 5, 18})));
        // Heads: rows of one head lie apart.
        TensorDesc heads = dense({2, 3, 5, 8});
        heads.strides = {5 * 24, 8, 24, 1};
        list.push_back(make_case(options({}), heads, transposed(heads), dense({2, 3, 5, 5})));
        list.push_back(make_case(options({}), dense({2, 3, 5, 5}), heads, heads));
      }
  // Biases of other shapes than a row.
  for (const bool constant : {true, false})
    for (const Epilogue& epilogue :
         {Epilogue{}, finish(relu), finish({}, false, gelu), finish(relu, true, gelu)}) {
      std::vector<TensorDesc> biases = {dense({2, 6, 20}),
                                        expanded(dense({2, 6, 1}), {2, 6, 20}),
                                        expanded(dense({1, 6, 20}), {2, 6, 20}),
                                        expanded(dense({2, 1, 20}), {2, 6, 20}),
                                        expanded(dense({1, 1, 1}), {2, 6, 20}),
                                        transposed(dense({2, 20, 6}))};
      for (const TensorDesc& bias : biases) {
        KernelCase test = make_case({constant, 2, true, epilogue}, dense({2, 6, 9}),
                                    dense({1, 9, 20}), dense({2, 6, 20}));
        test.operands[2] = bias;
        list.push_back(test);
      }
    }
  // An addend of another layout.
  KernelCase test = make_case({true, 1, true, finish(relu, true, relu)}, dense({6, 9}),
                              dense({9, 20}), dense({6, 20}));
  test.operands[3] = transposed(dense({20, 6}));
  list.push_back(test);
  return list;
}

std::vector<KernelCase> matmul_bench_cases() {
  std::vector<KernelCase> list;
  const Activation relu{ActivationKind::kRelu};
  const Activation gelu{ActivationKind::kGeluErf};
  const auto options = [](Epilogue epilogue, bool constant = true) {
    return Options{constant, 1, constant, epilogue};
  };
  // BERT.
  list.push_back(plain(128, 768, 768, options({})));
  list.push_back(plain(128, 768, 768, options(finish({}, true))));
  list.push_back(plain(128, 768, 3072, options(finish(gelu))));
  list.push_back(plain(128, 3072, 768, options({})));
  list.push_back(make_case(options({}, false), dense({12, 128, 64}),
                           transposed(dense({12, 128, 64})), dense({12, 128, 128})));
  list.push_back(make_case(options({}, false), dense({12, 128, 128}), dense({12, 128, 64}),
                           dense({12, 128, 64})));
  list.push_back(plain(256, 256, 256, options({}, false)));
  // Last layers, and small networks on one sample.
  list.push_back(plain(1, 2048, 1000, options({})));
  list.push_back(plain(1, 1280, 1000, options({})));
  list.push_back(plain(1, 1056, 1000, options({})));
  list.push_back(plain(8, 2048, 1000, options({})));
  list.push_back(plain(1, 64, 64, options(finish(relu))));
  list.push_back(plain(1, 64, 8, options({})));
  list.push_back(plain(1, 256, 256, options(finish(relu))));
  list.push_back(plain(16, 64, 64, options(finish(relu))));
  return list;
}

}  // namespace nimble
