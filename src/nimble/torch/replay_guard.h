#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "nimble/torch/intra_op.h"

namespace nimble {

// Ops called under it go straight to their kernels: no autograd, no autocast (the recording has
// the casts), no inference tensors.
class FrameworkDispatch {
 public:
  FrameworkDispatch() : not_inference_(false), no_autocast_(c10::autocast_dispatch_keyset) {}

 private:
  c10::InferenceMode not_inference_;
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

// What a caller's thread needs while it replays.
class ReplayGuard {
 public:
  explicit ReplayGuard(int intra_op_threads)
      : threads_(is_forked_process() ? 1 : intra_op_threads) {}

 private:
  FrameworkDispatch dispatch_;
  IntraOpThreads threads_;
};

}  // namespace nimble
