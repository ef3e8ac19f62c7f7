#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace nimble {

// A strong index into a vector that someone else owns. Ids of different kinds do not mix.
template <class Kind>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t index = kNone;

  constexpr Id() = default;
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
};

using BufferId = Id<struct BufferKind>;  // a piece of memory the recorded run touched
using ViewId = Id<struct ViewKind>;      // a strided window on a buffer
using CallId = Id<struct CallKind>;      // one recorded framework call
using ValueId = Id<struct ValueKind>;    // one SSA version of a buffer
using MemoryId = Id<struct MemoryKind>;  // a piece of memory of the plan
using OpId = Id<struct OpKind>;          // a node of the graph
using KernelId = Id<struct KernelKind>;  // one of the kernels that a plan has chosen
using TaskId = Id<struct TaskKind>;      // what a worker runs; numbered in recorded order
using StreamId = Id<struct StreamKind>;

}  // namespace nimble

template <class Kind>
struct std::hash<nimble::Id<Kind>> {
  size_t operator()(nimble::Id<Kind> id) const noexcept { return id.index; }
};
