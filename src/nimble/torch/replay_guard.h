#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "nimble/torch/intra_op.h"

namespace nimble {

// Ops called under it go straight to their kernels: no autograd, no autocast (the recording has
// the casts), no dispatch modes of Python, no inference tensors.
class FrameworkDispatch {
 public:
  FrameworkDispatch()
      : not_inference_(false),
        no_autocast_(c10::autocast_dispatch_keyset),
        no_modes_(
            c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})) {}

 private:
  c10::InferenceMode not_inference_;
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
  c10::impl::ExcludeDispatchKeyGuard no_modes_;
};

// What a caller's thread needs while it replays.
class ReplayGuard {
 public:
  explicit ReplayGuard(int intra_op_threads)
      : threads_(threads_in_this_process(intra_op_threads)) {}

 private:
  FrameworkDispatch dispatch_;
  IntraOpThreads threads_;
};

}  // namespace nimble
