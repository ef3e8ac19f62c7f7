#pragma once

#include "nimble/kernels/family.h"

// The list of kernel families. A new one is declared and listed here, and nowhere else.
#define NIMBLE_KERNEL_FAMILIES(FAMILY)                           \
  FAMILY(convolution, Convolution)                               \
  FAMILY(convolution_backward_input, ConvolutionBackwardInput)   \
  FAMILY(convolution_backward_weight, ConvolutionBackwardWeight) \
  FAMILY(separable, SeparableConvolution)                        \
  FAMILY(matmul, MatMul)                                         \
  FAMILY(pool, Pool)                                             \
  FAMILY(adaptive_pool, AdaptivePool)                            \
  FAMILY(chain, Chain)                                           \
  FAMILY(reduce, Reduce)                                         \
  FAMILY(softmax, Softmax)                                       \
  FAMILY(layer_norm, LayerNorm)                                  \
  FAMILY(group_norm, GroupNorm)                                  \
  FAMILY(embedding, Embedding)                                   \
  FAMILY(attention, Attention)                                   \
  FAMILY(resize, Resize)                                         \
  FAMILY(copy, Copy)                                             \
  FAMILY(pad, Pad)                                               \
  FAMILY(chain_sums, ChainSums)                                  \
  FAMILY(channel_moments, ChannelMoments)                        \
  FAMILY(batch_statistics, BatchStatistics)                      \
  FAMILY(max_pool_indices, MaxPoolIndices)                       \
  FAMILY(pool_gradient, PoolGradient)                            \
  FAMILY(adaptive_pool_gradient, AdaptivePoolGradient)           \
  FAMILY(softmax_gradient, SoftmaxGradient)                      \
  FAMILY(nll_loss, NllLoss)                                      \
  FAMILY(nll_loss_gradient, NllLossGradient)                     \
  FAMILY(layer_norm_gradient, LayerNormGradient)                 \
  FAMILY(embedding_gradient, EmbeddingGradient)

namespace nimble {

// Each family x is in x.cc (kernels), x_reference.cc (plain loops and cases) and defines these.
#define NIMBLE_DECLARE_FAMILY(name, Attributes)                                             \
  std::vector<KernelPtr> name##_candidates(const Attributes&, std::span<const TensorDesc>); \
  void name##_reference(const Attributes&, std::span<const TensorDesc>, void* const* data); \
  std::vector<KernelCase> name##_test_cases();                                              \
  std::vector<KernelCase> name##_bench_cases();
NIMBLE_KERNEL_FAMILIES(NIMBLE_DECLARE_FAMILY)
#undef NIMBLE_DECLARE_FAMILY

}  // namespace nimble
