#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace nimble {

// Writes into tensors that leave their version as it was: those of the framework's fused
// optimizers. Who keeps something made from a tensor asks for its counter; who writes it counts.
// Any thread may do either; fork() finds no lock held.
using WriteCounter = std::shared_ptr<const std::atomic<uint32_t>>;
WriteCounter uncounted_writes(const c10::StorageImpl* storage);

void note_uncounted_write(const at::Tensor& tensor);

}  // namespace nimble
